"""The command line: `phasewise` with the commands of the extender, one per file."""
