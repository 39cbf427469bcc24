"""Pictures of what the memory did, from numpy arrays alone."""
