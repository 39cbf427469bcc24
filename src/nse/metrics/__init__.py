"""Measures of rankings and translations, computed from numpy arrays and texts."""
