"""What was before the start: use of long ago, and whose it was."""
