"""How metrics arrive: files, saved answers and a Prometheus, all into the same table."""
