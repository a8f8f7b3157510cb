"""User code in Lua and Python, whose variables are state."""

__all__ = ["canonical_bytes", "code_state", "contract", "fields", "languages", "python", "shared"]
