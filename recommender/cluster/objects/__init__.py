"""API objects parsed from JSON: only the fields we need, frozen, validated."""
