"""Slow versions of fast code, written for reading: benches are measured against them, and tests compare results."""
