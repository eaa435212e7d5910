"""What earlier runs of a workload teach its next one."""
