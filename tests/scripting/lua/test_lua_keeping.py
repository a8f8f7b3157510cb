"""The variables of Lua code are written and read without running user code; lack of memory ends the engine (SPEC A36, F4)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from hotspare.base.errors import StateError
from hotspare.model.code import Code, CodeLimits, Language, Module, ModuleUse, Script
from hotspare.model.types import Field, FieldType, Schema
from hotspare.rows.bad_reasons import BadReason
from hotspare.scripting.contract import CodeFailure, InputEvents, Instance, ProgramText, TimeAndSeed
from hotspare.scripting.lua.program import LuaProgram

NOW = TimeAndSeed(1_500_000, 7)
EVENTS = """
__eq __index __newindex __len __pairs __tostring __close __concat __lt __le __call __unm __bnot __add __sub __mul __div __mod __pow
__idiv __band __bor __bxor __shl __shr
""".replace("\n", " ")
NOTHING_IN_VAIN = (
    f"calls = 0 mt = {{__name = 'counted'}} for name in ('{EVENTS}'):gmatch('%S+') do"
    """
  mt[name] = function(...) calls = calls + 1 return name == "__eq" or nil end
end
local function counted(t) return setmetatable(t, mt) end
setmetatable(mt, setmetatable({}, mt))
a, b = counted({x = 1, print = 2, [1] = 3}), counted({y = 2})
local c, d = counted({a}), {counted({}), inner = counted({b})}
string.mine, utf8, _G.math = counted({}), counted({}), counted({sin = 1})
setmetatable(table, mt)
function f(what)
  if what == "change" then
    os, a, b, c = counted({}), b, a, counted({c})
    d.inner, coroutine = counted({}), counted({yield = 1})
    string.mine = counted({1})
  end
  if what == "fail" then error(counted({})) end
  return calls
end
function use() return c, d end
"""
)


LIMITS = CodeLimits(200_000, 100_000)


def program(code: str, limits: CodeLimits = LIMITS, memory_bytes: int = 64 << 20) -> LuaProgram:
    module = Module(
        "m", Language.LUA, Code("local m = setmetatable({}, {__eq = error, __index = error}) return m"), ModuleUse.MODULE
    )
    return LuaProgram(
        ProgramText("q/w", Script(Language.LUA, Code(code), "f", limits=limits), (module,)), memory_bytes=memory_bytes
    )


def outcome(instance: Instance, *arguments: object) -> object:
    try:
        return instance.call("f", arguments, NOW)
    except CodeFailure as failure:
        return failure.text


def test_no_user_code_runs_while_variables_are_looked_at_written_or_read() -> None:
    of = program(NOTHING_IN_VAIN)
    instance = of.open()
    calls = instance.variable("calls")
    for what in ("", "change", "fail", "change", ""):
        found = outcome(instance, what)
        assert found == ("fails with a table" if what == "fail" else calls)
        twin = of.open()
        twin.load(instance.save())
        assert (instance.variable("calls"), twin.variable("calls")) == (calls, calls)
        assert twin.save() == instance.save()


def test_a_state_over_its_limit_ends_the_window_at_the_event_that_fails() -> None:
    """An event that fails in the middle may leave more than is allowed."""
    of = program("n = 0 function f(go) n = n + 1 big = 'x' while go do big = big .. big end return n end")
    instance = of.open()
    assert outcome(instance, False) == 1
    assert outcome(instance, True) == "takes more than 200000 steps"
    assert outcome(instance, False) == "its variables hold more than 100000 bytes"
    twin = of.open()
    twin.load(instance.save())
    assert outcome(twin, False) == "its variables hold more than 100000 bytes"


def test_an_event_that_fails_is_looked_at_however_much_there_is_to_look_at() -> None:
    code = "t = {} for i = 1, 3000 do t[i] = i end function f(go) if go then kept = function() end error('x') end return 1 end"
    instance = program(code).open()
    assert [outcome(instance, go) for go in (False, False)] == [1, 1]
    assert str(outcome(instance, True)).endswith("x")
    assert str(outcome(instance, False)).startswith("variable kept holds a function")


SHAPES = {
    "tables": "for i = 1, N // 46 do t[i] = {i} end",
    "empty tables": "for i = 1, N // 30 do t[i] = {} end",
    "truths": "for i = 1, N // 10 do t[i] = true end",
    "numbers": "for i = 1, N // 18 do t[i] = i end",
    "keys": "for i = 1, N // 30 do t['k' .. i] = i end",
    "tables by key": "for i = 1, N // 50 do t['k' .. i] = {a = true} end",
    "one text": "t[1] = ('x'):rep(N - 2000)",
    "texts": "for i = 1, N // 68 do t[i] = ('x'):rep(40) .. i end",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_written_can_be_read(shape: str) -> None:
    """A state of the greatest allowed size, in a machine with almost no other memory."""
    size = 1 << 18
    of = program(f"t, N = {{}}, {size} function f() {SHAPES[shape]} return N end", CodeLimits(10**8, size + 1000), 1 << 20)
    instance = of.open()
    assert outcome(instance) == size
    twin = of.open()
    twin.load(instance.save())
    assert twin.save() == instance.save()


TOO_MUCH = "function() return {s, s .. 1, s .. 2, s .. 3, s .. 4, s .. 5} end"
CAUGHT = {
    "nothing": f"return ({TOO_MUCH})()",
    "pcall": f"local ok, why = pcall({TOO_MUCH}) return why",
    "a coroutine": f"coroutine.resume(coroutine.create({TOO_MUCH})) return 1",
    "an error in __close": "local t <close> = setmetatable({}, {__close = function() error('other') end})"
    f" return ({TOO_MUCH})()",
    "another error": f"pcall({TOO_MUCH}) error('other')",
}


@pytest.mark.parametrize("how", CAUGHT)
def test_memory_that_runs_out_ends_the_engine(how: str) -> None:
    """The code cannot prevent it: another engine may have had enough memory."""
    code = f"s = ('x'):rep(1 << 20) function f(go) if go then {CAUGHT[how]} end return 1 end"
    instance = program(code, CodeLimits(10**8, 1 << 10), 6 << 20).open()
    with pytest.raises(StateError, match="the Lua code of window q/w needs more than 6 MiB of memory"):
        instance.call("f", (True,), NOW)


GARBAGE = {
    "many texts": "for i = 1, 200 do local s = ('x'):rep(1 << 17) end",
    "large texts": "for i = 1, 12 do local s = ('x'):rep(1 << 21) end",
    "tables": "for i = 1, 100000 do local t = {i} end",
    "one text": "local s = ('x'):rep(1 << 21)",
}


@pytest.mark.parametrize("made", GARBAGE)
def test_events_may_make_more_garbage_than_their_machine_has(made: str) -> None:
    instance = program(f"function f() {GARBAGE[made]} return 1 end", CodeLimits(10**8, 1 << 10), 10 << 20).open()
    assert [outcome(instance) for _ in range(12)] == [1] * 12
    assert instance.memory_bytes < 10 << 20


def test_a_window_that_takes_no_event_any_more_lets_memory_go() -> None:
    instance = program("function f() kept = coroutine.create(f) return 1 end", memory_bytes=64 << 20).open()
    for _ in range(3):
        outcome(instance)
    twin = program("function f() kept = coroutine.create(f) return 1 end", memory_bytes=64 << 20).open()
    twin.load(instance.save())
    texts = pa.array(["x" * 1000] * 20_000)
    columns, zeros = [texts], np.zeros(20_000, np.int64)
    events = InputEvents(
        "in", Schema((Field("s", FieldType.STRING),)), columns, zeros.astype(np.uint8), zeros, zeros.astype(np.uint64), zeros
    )
    for each in (instance, twin):
        assert len(each.make_events("f", events.slice(0, 4096), Schema(()), 5000).failed) == 4096
        assert len(each.select("f", events)[1]) == 20_000
        assert each.memory_bytes < 24 << 20


def test_a_value_that_goes_out_is_no_larger_than_what_can_be_counted() -> None:
    instance = program("function f() local t = {1} for i = 1, 60 do t = {t, t} end return t end").open()
    with pytest.raises(CodeFailure, match="a value holds more than") as failure:
        instance.call("f", (), NOW)
    assert failure.value.reason is BadReason.CODE_LIMIT


def test_garbage_is_collected_at_the_same_step_in_every_engine() -> None:
    """Code whose tables became weak through a computed name can observe collection. Garbage of earlier events has no influence."""
    code = """
m = {} function f()
  local p, n = setmetatable({}, m), 0
  rawset(m, "__" .. "mode", "v")
  p[1] = {}
  repeat n = n + 1 local s = ("x"):rep(1 << 12) until p[1] == nil or n > 100000
  m["__" .. "mode"] = nil
  return n
end"""
    of = program(code, CodeLimits(10**8, 1 << 10), 16 << 20)
    whole, restored, found = of.open(), of.open(), []
    for _ in range(6):
        found.append((outcome(whole), outcome(restored)))
        twin = of.open()
        twin.load(restored.save())
        restored = twin
    assert len({n for pair in found for n in pair}) == 1, found
    assert found[0][0] < 100000
