"""The stages after a window of any type: splitter, emission, delivery, beats."""

__all__ = ["beats", "delivery", "emission", "splitter"]
