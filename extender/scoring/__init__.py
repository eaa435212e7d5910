"""Filters and scores nodes for a pod: pure functions on a snapshot."""
