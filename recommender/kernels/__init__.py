"""Loops over samples, compiled: plain arrays in and out; each has a slow twin that it is tested against."""
