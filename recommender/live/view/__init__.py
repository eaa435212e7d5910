"""What a round sees of the cluster, and how it writes to it: the interface between deciding and the real cluster."""
