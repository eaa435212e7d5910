"""Real training jobs on the CPU, and their recorder."""
