"""Kernels that write rows as text."""
