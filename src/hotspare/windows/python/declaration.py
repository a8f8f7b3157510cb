"""Python window: user code in Python is called for each event, and makes events (SPEC A36)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hotspare.model.code import Language
from hotspare.model.code_windows import CodeType, CodeWindow
from hotspare.model.window_type import Inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonWindow(CodeWindow):
    """A Python window as declared: its code is Python."""


class PythonType(CodeType[PythonWindow]):
    name = "python"
    declared = PythonWindow
    inputs: ClassVar[Inputs] = Inputs(1, None)
    language = Language.PYTHON
    example = """
windows:
  given: {type: source, opcodes: any, schema: "id*:string,x:double,n:int64"}
  highest:
    type: python
    schema: "id*:string,n:int64,best:double,seen:int64"
    events: create
    init: begin
    copy-except: [x]
    use: [x]
    transient: [limits]
    steps-max: 10000
    state-bytes-max: 65536
    code: |
      import math
      best, names, limits = {}, set(), None

      def begin():
          global limits
          limits = (-math.inf, math.inf)

      def create(data, context):
          if context["opcode"] == "delete":
              return {}
          x = data["x"]
          if x is None:
              raise ValueError("x is not there")
          names.add(str(x))
          best[len(names)] = max(best.values(), default=limits[0])
          return {"best": x, "seen": len(names), "_opcode": "upsert"}
  twice:
    type: python
    index: empty
    schema: "id*:string,n:int64"
    events: create
    copy: []
    use-except: [x]
    arguments: fields
    code: |
      def create(id, n):
          return [{"id": id, "n": 1}, {"id": id + "/", "n": 2.5 if n is None else n}]
  both:
    type: python
    schema: "id*:string,x:double,by:string,times:int64"
    events: create
    code: |
      times = {}

      def create(data, context):
          times[context["input"]] = times.get(context["input"], 0) + 1
          return {"by": context["input"], "times": times[context["input"]], "_opcode": "upsert"}
edges: [given -> highest, given -> twice, highest -> both, given -> both]
"""
