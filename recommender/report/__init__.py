"""The words and pages of a dry run, for a terminal and for a browser."""
