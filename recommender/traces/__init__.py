"""Recorded traces, played again under a recommender: what it would have given their containers, and whom it killed."""
