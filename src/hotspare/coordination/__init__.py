"""Epochs by compare-and-set, leases and members."""

__all__ = ["contract", "memory", "open"]
