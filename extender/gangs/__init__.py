"""Gang scheduling: pods start together or not at all. Pure functions decide, the controller removes their gates."""
