"""Parts of scripts/bench_moves."""
