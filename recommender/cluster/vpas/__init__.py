"""Writing VPAs: their statuses, their checkpoints, and VPAs that we create."""
