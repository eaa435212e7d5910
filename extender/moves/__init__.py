"""Moves of training jobs between nodes, by SpeCon's algorithms or ours: planned, reported and, if enabled, made."""
