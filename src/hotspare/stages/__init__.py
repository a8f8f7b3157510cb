"""What follows a window of any type: splitter, emission, delivery."""

__all__ = ["beats", "delivery", "emission", "splitter"]
