"""A cluster on paper: containers that use, are killed, restarted and resized, and who decides what they get."""
