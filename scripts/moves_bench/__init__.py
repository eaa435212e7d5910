"""What a plan of moves takes on a large cluster."""
