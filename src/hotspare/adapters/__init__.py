"""Events in and out of a group: files, sockets, external topics, databases, and connectors, which fail over with their engine."""

__all__ = [
    "connectors",
    "esp",
    "failover",
    "file_places",
    "files",
    "guess",
    "metadata",
    "received",
    "recording",
    "sockets",
    "time_texts",
    "topics",
]
