"""Lua window (SPEC A36)."""

from __future__ import annotations

from hotspare.windows.shared.code_operator import CodeWindowOperator


class LuaOperator(CodeWindowOperator):
    """Its program is Lua."""
