"""Kernels that read JSON."""
