"""The HTTP service around the decisions, and the process that it is."""
