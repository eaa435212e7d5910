"""Models: trained, stored, loaded, and what they forecast."""
