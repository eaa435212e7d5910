"""The recommender in a cluster: rounds that look, decide and write."""
