"""Every live container: its latest samples, its phase, and what is decided for it."""
