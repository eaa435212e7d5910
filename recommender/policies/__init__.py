"""Policies that set requests: one per file, all with the same interface."""
