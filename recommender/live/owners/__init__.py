"""Whose each container is, and how its use compares with what it has."""
