"""Simulated workers whose jobs contend: cores are shared, memory runs out, jobs are moved, and learn as they work."""
