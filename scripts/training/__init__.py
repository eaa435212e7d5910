"""Real training jobs on the CPU and the recorder that watches them."""
