"""What is shipped with the package: recordings of real training runs, and the bundled model."""
