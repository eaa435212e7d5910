"""A simulated cluster in which recorded traces run again: what a recommender would have given them, whom it killed."""
