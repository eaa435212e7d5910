"""Training progress of each pod, from the sources where jobs report it."""
