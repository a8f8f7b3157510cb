"""Adapters move events between a group and files, sockets, external topics and databases. Connectors fail over with their
engine."""

__all__ = [
    "changelog_reading",
    "connectors",
    "esp",
    "failover",
    "file_places",
    "files",
    "guess",
    "metadata",
    "recording",
    "sockets",
    "time_texts",
    "topics",
]
