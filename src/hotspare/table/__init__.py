"""State in pages: rows, indexes, retention, texts."""

__all__ = [
    "absent",
    "absent_relation",
    "identifiers",
    "lanes",
    "loops",
    "memory",
    "multi_index",
    "over_rows",
    "page_cache",
    "pages",
    "relation",
    "row_index",
    "strings",
    "text_pieces",
    "unlinked",
]
