"""Pictures of trained phases and dry runs."""
