"""Requests of pods and their expected use: by history, requests, measurement or size."""
