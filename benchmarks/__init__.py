"""What Phasewise is measured by; `scripts/bench_*` are its commands."""
