"""Simulated workers whose jobs contend: cores are shared, jobs are moved, and learn as they work."""
