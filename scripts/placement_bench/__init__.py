"""What scripts/bench_placement is made of: recorded jobs, simulated nodes, real schedulers, and the load they make."""
