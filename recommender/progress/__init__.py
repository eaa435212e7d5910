"""How far trainings have got: readings of their progress, and how they grow."""
