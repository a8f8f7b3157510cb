"""Python window (SPEC A36)."""

from __future__ import annotations

from hotspare.engine.operators.code_window import CodeWindowOperator


class PythonOperator(CodeWindowOperator):
    """Its program is Python."""
