"""The report of a dry run: terminal, JSON, CSV and HTML; a PhaseProfile as text."""
