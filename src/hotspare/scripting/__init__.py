"""User code in Lua and Python, whose variables are state."""

__all__ = ["contract", "fields", "part", "programs", "python", "shared", "tree"]
