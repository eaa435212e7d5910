"""The parts of `scripts/bench_scheduler`."""
