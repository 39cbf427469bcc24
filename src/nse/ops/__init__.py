"""Tensors in, tensors out: the recurrence and its backends. `reference` is the paper, the others are fast."""
