"""Many rows at a time: what a model answers to a chunk of them, here or on the machines of a Ray cluster."""
