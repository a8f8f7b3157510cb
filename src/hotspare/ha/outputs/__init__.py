"""The outputs held until they are committed, and the messages that they become."""

__all__ = ["message", "qualities"]
