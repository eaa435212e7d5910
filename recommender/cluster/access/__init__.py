"""Requests to the API server: address, credentials, rate limits, and errors."""
