"""Requests to an API server: where it is, who we are, how fast, and what its answers and silences mean."""
