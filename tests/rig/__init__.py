"""A real Kubernetes cluster on this machine, from servers built once, for tests, benchmarks and `scripts/cluster`."""
