"""The decider: from what is observed of containers to their targets. It knows no Kubernetes, files or clock."""
