"""VPAs for workloads that nobody wrote one for."""
