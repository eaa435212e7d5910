"""A real Kubernetes cluster on this machine, of servers built once, for tests, benches and `scripts/cluster`."""
