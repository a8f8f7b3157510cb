"""Where the memory of windows is: a budget, and a page file for what is cold (SPEC G1-G4)."""

__all__ = ["budget", "open"]
