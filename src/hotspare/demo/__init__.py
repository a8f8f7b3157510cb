"""The demo: kills and freezes engines of a group on this machine while it works, and checks its output."""

__all__ = ["applications", "availability", "faults", "scenario", "servers", "show", "site"]
