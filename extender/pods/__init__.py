"""What a pod asks for, and what it is expected to use: by its history, by its requests, by its size."""
