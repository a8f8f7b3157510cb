"""Runs one engine's part in one group: `rules` decides, `effects` acts."""

__all__ = ["effects", "events", "group", "member_record", "outputs", "peers", "ports", "process_watcher", "rules"]
