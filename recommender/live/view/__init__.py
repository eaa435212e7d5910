"""What a round sees of the cluster, and the door through which it writes: the seam between deciding and the outside."""
