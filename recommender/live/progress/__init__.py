"""How the training of each pod comes along, from wherever jobs say it."""
