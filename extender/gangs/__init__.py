"""Gangs: pods of worth only all together. When they may go is decided by pure functions; the controller lets them."""
