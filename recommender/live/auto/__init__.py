"""VPAs for workloads that have none."""
