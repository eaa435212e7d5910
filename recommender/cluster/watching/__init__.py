"""Local caches of resources, kept up to date by list and watch."""
