"""Current usage of containers, and OOM kills."""
