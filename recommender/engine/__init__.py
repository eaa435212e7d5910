"""What decides: from what is seen of containers to what they are to have. It knows no Kubernetes, files or clock."""
