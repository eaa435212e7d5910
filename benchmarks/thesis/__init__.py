"""Parts of scripts/bench_thesis: jobs and settings of the thesis, deciders, and tables."""
