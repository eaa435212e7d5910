"""Simulated clusters, nodes and workloads, for tests and benchmarks."""
