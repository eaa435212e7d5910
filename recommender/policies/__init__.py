"""What sets requests: each policy a file, all of one shape."""
