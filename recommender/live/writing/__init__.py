"""What is written for each VPA: its status, its PhaseProfile, and requests of its pending pods."""
