"""The HTTP server of the extender and the other programs."""
