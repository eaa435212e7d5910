"""Parts of scripts/bench_node: a batch of training jobs, a node too small for it, and who sets the requests."""
