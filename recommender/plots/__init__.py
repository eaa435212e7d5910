"""Pictures of what was learned and what was replayed."""
