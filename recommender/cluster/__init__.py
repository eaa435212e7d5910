"""The Kubernetes API: the only package that knows it, its client library and its objects."""
