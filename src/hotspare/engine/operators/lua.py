"""Lua window (SPEC A36)."""

from __future__ import annotations

from hotspare.engine.operators.code_window import CodeWindowOperator


class LuaOperator(CodeWindowOperator):
    """Its program is Lua."""
