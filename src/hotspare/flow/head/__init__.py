"""The head: decodes events and prepares them for the first stateful window."""

__all__ = ["head", "unknown_members"]
