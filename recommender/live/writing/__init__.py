"""What is written of each VPA: its status, its PhaseProfile, and when."""
