"""Topics as sources and destinations of events, hotspare's own and external ones."""

__all__ = ["form", "position", "publisher", "schemas", "send_form", "subscriber"]
