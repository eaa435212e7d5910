"""Who controls whom: from a target or a pod to what runs, and what makes runs comparable."""
