"""The page cache of windows: a memory budget, and a page file for cold pages (SPEC G1-G4)."""

__all__ = ["budget", "open"]
