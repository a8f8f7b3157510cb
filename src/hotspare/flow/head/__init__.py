"""The head: events decoded and prepared before the first stateful window."""

__all__ = ["head", "unknown_members"]
