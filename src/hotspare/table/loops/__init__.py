"""Kernels over state in pages."""

__all__ = [
    "columns",
    "groups",
    "index",
    "interning",
    "multi_index",
    "ordering",
    "outputs",
    "pages",
    "prefetch",
    "relation",
    "shared",
    "slots",
    "unlinked",
    "unloaded",
]
