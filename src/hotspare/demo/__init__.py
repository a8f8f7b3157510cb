"""The demo: a group of engines on this machine, killed in every way while it works, and its output checked."""

__all__ = ["applications", "availability", "faults", "scenario", "servers", "show", "site"]
