"""What scripts/bench_node is made of: a batch of training jobs, a node too small for it, and who sets the requests."""
