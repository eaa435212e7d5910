"""What kube-scheduler and its extenders say to each other, read strictly and written exactly."""
