"""Compiled kernel for CPUs."""
