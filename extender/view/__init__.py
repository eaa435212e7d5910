"""The state of the cluster from watches and recent advice, and immutable snapshots of it."""
