"""Modules that own weights: the encoder and the models built on it."""
