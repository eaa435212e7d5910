"""The real cluster behind the seam: watches, usage, and the writers of what a round decided."""
