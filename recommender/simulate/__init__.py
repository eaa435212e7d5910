"""A simulated cluster that replays recorded traces: what a recommender would have given them, and OOM kills."""
