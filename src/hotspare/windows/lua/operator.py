"""Lua window: calls a function of user code for each event (SPEC A36)."""

from __future__ import annotations

from hotspare.windows.shared.code_operator import CodeWindowOperator


class LuaOperator(CodeWindowOperator):
    """The operator of a window whose code is Lua; `CodeWindowOperator` has all of the behaviour."""
