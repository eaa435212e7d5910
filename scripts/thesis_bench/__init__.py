"""What scripts/bench_thesis is made of: the thesis' jobs and settings, who decides, and the tables beside its own."""
