"""Loops over samples, compiled: plain arrays in and out; the slow twins are in `tests/reference/`."""
