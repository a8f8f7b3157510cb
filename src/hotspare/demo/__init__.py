"""The demo: a group of engines on this machine is killed in every way while it works, and its output is checked."""

__all__ = ["applications", "availability", "faults", "scenario", "servers", "show", "site"]
