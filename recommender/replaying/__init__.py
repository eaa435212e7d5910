"""Usage that is known already: replayed by policies, and what they decided."""
