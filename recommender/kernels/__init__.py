"""Compiled loops over samples: plain arrays in and out, each tested against a slow reference implementation."""
