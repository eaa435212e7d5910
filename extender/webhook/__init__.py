"""The mutating webhook and its serving certificates."""
