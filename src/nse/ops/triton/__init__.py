"""Fused kernels for NVIDIA devices."""
