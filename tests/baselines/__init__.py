"""Slow, readable versions of fast code: baselines of benchmarks, and references for tests."""
