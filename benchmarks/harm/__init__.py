"""Parts of scripts/bench_harm: simulated worlds, both recommenders in them, and the comparison."""
