"""VPAs as they are written: their statuses, their checkpoints, and those that we make."""
