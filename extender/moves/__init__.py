"""Moves of training jobs between nodes: planned by SpeCon's algorithms 4 and 5, told, and made where asked for."""
