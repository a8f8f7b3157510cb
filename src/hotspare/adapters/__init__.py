"""Adapters move events between a group and files, sockets, external topics and databases. Connectors fail over with their
engine."""

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
