"""One group in one engine: rules decide, effects act."""

__all__ = ["effects", "endings", "events", "group", "member_record", "outputs", "peers", "ports", "rules"]
