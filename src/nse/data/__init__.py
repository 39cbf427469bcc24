"""Published data sets: what there is, how to get it, how to read it, and one file of ids for training."""
