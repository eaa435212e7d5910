"""Gangs: pods of worth only all together, and when they may go to the scheduler. Pure."""
