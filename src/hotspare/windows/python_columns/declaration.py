"""Python window over columns: a function of user code computes columns of many events at once (SPEC A36)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hotspare.model.code import Arguments, Language
from hotspare.model.code_windows import CodeType, CodeWindow, copied_fields
from hotspare.model.mistakes import Mistakes
from hotspare.model.window_rules import check_keys
from hotspare.model.window_type import CarriedFields, StateHorizon, WindowInput


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonColumnsWindow(CodeWindow):
    """A window of user code that computes columns of many rows and keeps no state. The key passes through."""


class PythonColumnsType(CodeType[PythonColumnsWindow]):
    name = "python-columns"
    declared = PythonColumnsWindow
    language = Language.PYTHON
    example = """
windows:
  given: {type: source, opcodes: any, schema: "id*:string,x:double,n:int64"}
  scaled:
    type: python-columns
    schema: "id*:string,x:double,twice:double,n:int64"
    events: scale
    init: begin
    use: [x, n]
    copy-except: [n]
    transient: [factors]
    steps-max: 10000
    state-bytes-max: 4096
    code: |
      import pyarrow.compute as pc
      factors = None

      def begin():
          global factors
          factors = [2.0]

      def scale(data):
          return {"twice": pc.multiply(data["x"], factors[0]), "n": pc.divide(6, pc.subtract(data["n"], 2))}
  stream:
    type: python-columns
    index: empty
    schema: "id*:string,text:string"
    events: name
    use: [id]
    code: |
      def name(data):
          return {"text": [None if text.as_py() is None else text.as_py() + "!" for text in data["id"]]}
edges: [given -> scaled, given -> stream]
"""

    def check(self, window: PythonColumnsWindow, given: Sequence[WindowInput], found: Mistakes) -> None:
        super().check(window, given, found)
        if window.script.arguments is not Arguments.EVENT:
            found.add(window.place, f"window {window.name} gives its function columns, not fields", "leave arguments or expand out")
        schema = given[0].schema
        if window.schema is None or schema is None:
            return
        check_keys(window, window.schema, schema, found)
        copied = copied_fields(window, schema, window.schema)
        for field in window.schema.fields:
            if field.is_key and field.name not in copied:
                found.add(window.place, f"window {window.name} does not copy its key field {field.name}", "add it under copy")

    def state_horizons(self, window: PythonColumnsWindow) -> Iterator[StateHorizon]:
        return iter(())

    def carried_fields(
        self, window: PythonColumnsWindow, given: Sequence[WindowInput], keys: Sequence[frozenset[str]]
    ) -> CarriedFields:
        """Returns the partition fields that the window copies from its input."""
        names = window.schema.names if window.schema is not None else ()
        picked = window.copy.chosen_names(given[0].schema) if given[0].schema is not None else ()
        return CarriedFields(frozenset(name for name in picked if name in names and name in keys[0]))
