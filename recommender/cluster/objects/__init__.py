"""Objects of the API read from their JSON: slim, frozen, strict where they must be."""
