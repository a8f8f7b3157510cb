"""State in pages: rows, indexes, retention, texts."""

__all__ = [
    "derived_parts",
    "identifiers",
    "lanes",
    "loops",
    "memory",
    "multi_index",
    "page_cache",
    "pages",
    "relation",
    "row_index",
    "strings",
    "text_pieces",
    "unlinked",
    "unloaded",
    "unloaded_relation",
]
