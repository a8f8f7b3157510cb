"""Runs user code in Lua and Python; the variables of the code are state of its window."""

__all__ = ["canonical_bytes", "code_state", "contract", "fields", "languages", "python", "shared"]
