"""The command line: `phasewise` with the commands of the extender, each a file."""
