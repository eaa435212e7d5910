"""The JSON protocol between kube-scheduler and its extenders."""
