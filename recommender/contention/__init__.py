"""Policies for jobs that slow each other down: moves between workers and CPU shares (SpeCon, FlowCon, ours)."""
