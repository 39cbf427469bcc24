"""Figures that need more than counting, from numpy arrays alone."""
