"""Lua window: user code in Lua is called for each event, and makes events (SPEC A36)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hotspare.model.code import Language
from hotspare.model.code_windows import CodeType, CodeWindow
from hotspare.model.window_type import Inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class LuaWindow(CodeWindow):
    """A Lua window as declared: its code is Lua 5.4."""


class LuaType(CodeType[LuaWindow]):
    name = "lua"
    declared = LuaWindow
    inputs: ClassVar[Inputs] = Inputs(1, None)
    language = Language.LUA
    example = """
windows:
  given: {type: source, opcodes: any, schema: "id*:string,x:double"}
  highest:
    type: lua
    schema: "id*:string,x:double,best:double"
    events: create
    init: begin
    copy-except: [x]
    use: [x]
    transient: [seen]
    steps-max: 10000
    state-bytes-max: 65536
    code: |
      local best
      function begin() best = 0.0 end
      function create(data, context)
        if context.opcode == "delete" then return {} end
        seen = data.x
        if not seen or seen <= best then return nil end
        best = seen
        return {x = seen, best = best, _opcode = "upsert"}
      end
  twice:
    type: lua
    index: empty
    schema: "id*:string,n:int64"
    events: create
    copy: []
    use-except: [x]
    code: |
      function create(data)
        return {{id = data.id, n = 1}, {id = data.id .. "/", n = 2.5}}
      end
  both:
    type: lua
    schema: "id*:string,x:double,by:string,times:int64"
    events: create
    code: |
      local times = {}
      function create(data, context)
        times[context.input] = (times[context.input] or 0) + 1
        return {by = context.input, times = times[context.input], _opcode = "upsert"}
      end
edges: [given -> highest, given -> twice, given -> both, highest -> both]
"""
