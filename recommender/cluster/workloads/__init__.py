"""Controllers and their pods: owners, VPA targets, and workload classes."""
