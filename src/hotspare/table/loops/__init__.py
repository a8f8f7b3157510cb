"""Kernels over state in pages."""

__all__ = [
    "absent",
    "ahead",
    "columns",
    "groups",
    "hashing",
    "index",
    "interning",
    "multi_index",
    "ordering",
    "outputs",
    "pages",
    "relation",
    "shared",
    "slots",
    "unlinked",
]
