"""Parts of scripts/bench_harm: worlds, the two recommenders in them, and what comes out side by side."""
