"""The real cluster behind a `View`: watches, usage, and the writers of what a round decides."""
