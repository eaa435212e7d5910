"""What containers use now, and when they were killed for want of memory."""
