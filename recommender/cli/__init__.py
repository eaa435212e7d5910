"""The command line: `phasewise`, each command a file."""
