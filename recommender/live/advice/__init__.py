"""What each VPA is advised: from what its containers are about to do, through guard rails, to a target and its band."""
