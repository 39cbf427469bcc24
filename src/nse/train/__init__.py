"""Training: the loop, in sight."""
