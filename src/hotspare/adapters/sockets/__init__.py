"""Sockets as sources and destinations of events."""

__all__ = ["line_socket", "publisher", "subscriber"]
