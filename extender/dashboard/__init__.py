"""`phasewise web`: read-only pages on jobs, nodes, workload classes and warnings."""
