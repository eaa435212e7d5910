"""Phasewise: CPU and memory for the phase a training container is in, and for the one that comes next."""

__version__ = "0.1.0"
