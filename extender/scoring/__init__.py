"""How well each node suits a pod, and which it must not go to: plain functions on a snapshot."""
