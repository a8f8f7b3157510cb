"""Python window (SPEC A36)."""

from __future__ import annotations

from hotspare.windows.shared.code_operator import CodeWindowOperator


class PythonOperator(CodeWindowOperator):
    """Its program is Python."""
