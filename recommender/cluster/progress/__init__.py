"""Training progress from pods: annotations and logs."""
