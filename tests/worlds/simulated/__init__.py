"""A simulated cluster: kubelet, controllers, metrics server, and the VPA's components."""
