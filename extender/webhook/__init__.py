"""The mutating webhook, and the certificates that it shows."""
