"""The part of one engine in one group: rules decide, effects act."""

__all__ = ["effects", "events", "group", "member_record", "outputs", "peers", "ports", "process_watcher", "rules"]
