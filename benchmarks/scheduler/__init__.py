"""Parts of scripts/bench_scheduler."""
