"""Parts of scripts/bench_placement: recorded jobs, simulated nodes, real schedulers, and the resulting load."""
