"""Policies that set requests, what they learn of use, and the limits of what they set."""
