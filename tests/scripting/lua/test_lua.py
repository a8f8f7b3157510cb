"""The Lua machine: limits, order, kept variables, and that no code can end the engine (SPEC A36, F4, Z8)."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import ProjectError, SnapshotDamaged, StateError
from hotspare.model.code import Code, CodeLimits, Language, Script
from hotspare.model.types import Field, FieldType, Schema
from hotspare.rows.bad_reasons import BadReason
from hotspare.scripting.code_state import CodeState
from hotspare.scripting.contract import CodeFailure, InputEvents, Instance, Program, ProgramText, TimeAndSeed
from hotspare.scripting.languages import compile_user_code
from tests.examples import examples

GIVEN = Schema((Field("n", FieldType.INT64), Field("s", FieldType.STRING)))
MADE = Schema((Field("n", FieldType.INT64), Field("s", FieldType.STRING), Field("x", FieldType.DOUBLE)))
NOW = TimeAndSeed(1_500_000, 7)


def program(code: str, steps_max: int = 200_000, state_bytes_max: int = 100_000, transient: tuple[str, ...] = ()) -> Program:
    script = Script(Language.LUA, Code(code), "f", transient=transient, limits=CodeLimits(steps_max, state_bytes_max))
    return compile_user_code(ProgramText("q/w", script))


def value_of(expression: str, *arguments: Any) -> Any:
    return program(f"function f(...) return {expression} end").open().call("f", arguments, NOW)


def failure_of(instance: Instance, *arguments: Any) -> CodeFailure:
    with pytest.raises(CodeFailure) as failure:
        instance.call("f", arguments, NOW)
    return failure.value


def restored(instance: Instance, of: Program) -> Instance:
    twin = of.open()
    twin.load(instance.save())
    return twin


KEYS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.text(max_size=4), st.booleans())
SCALARS = st.one_of(KEYS, st.floats(allow_nan=False))
TREES = st.recursive(SCALARS, lambda v: st.lists(v, max_size=4) | st.dictionaries(st.text(max_size=4), v, min_size=1, max_size=4))


@given(TREES)
def test_values_go_in_and_come_out_equal(value: Any) -> None:
    def as_lua(value: Any) -> Any:
        """An empty list and an empty dict are one table."""
        if isinstance(value, list):
            return [as_lua(each) for each in value] or {}
        return {key: as_lua(each) for key, each in value.items()} if isinstance(value, dict) else value

    assert value_of("...", value) == as_lua(value)


@given(st.dictionaries(KEYS, st.integers(0, 9), max_size=20), st.randoms())
@examples(0.5)
def test_pairs_and_next_go_through_keys_in_one_order(table: dict[Any, int], random: Any) -> None:
    table = {key: value for key, value in table.items() if not (isinstance(key, bool) or key in (0, 1))}
    code = """
    function f(keys)
      local t, walked, nexts, key = {}, {}, {}, nil
      for i = 1, #keys do t[keys[i]] = i end
      for k in pairs(t) do walked[#walked + 1] = k end
      for k in next, t do nexts[#nexts + 1] = k end
      return {walked = walked, nexts = nexts}
    end"""
    keys = list(table)
    random.shuffle(keys)
    found = program(code).open().call("f", (keys,), NOW)
    numbers = sorted(key for key in keys if isinstance(key, int))
    texts = sorted((key for key in keys if isinstance(key, str)), key=str.encode)
    expected = [*numbers, *texts] or {}
    assert found == {"walked": expected, "nexts": expected}


ENDLESS = [
    "while true do end",
    "repeat pcall(function() while true do end end) until false",
    "repeat xpcall(error, function() while true do end end) until false",
    "repeat coroutine.resume(coroutine.create(function() while true do end end)) until false",
    "local wrap = coroutine.wrap(function() while true do coroutine.yield() end end) while true do wrap() end",
    "local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end})"
    " repeat pcall(function() return t[1] end) until false",
    "string.rep('x', 1 << 40)",
    "local s = 'x' while true do s = s:rep(1000) end",
    "('a'):rep(20000):find(('.-'):rep(20) .. 'b')",
    "('a'):rep(3000):gsub('(a*)*(a*)b', '')",
    "local t = {} for i = 1, math.huge do t[i] = i end",
    "table.move({}, 1, 1 << 40, 2)",
    "local t = {} for i = 1, 30000 do t[i] = -i end while true do table.sort(t) end",
    "table.sort({3, 2, 1, 5, 4}, function() while true do end end)",
    "local s = ('x'):rep(100000) while true do s:upper() end",
    "for w in ('a '):rep(1000):gmatch('%a') do while true do end end",
    "local t <close> = setmetatable({}, {__close = function() while true do end end}) while true do end",
]


@pytest.mark.parametrize("code", ENDLESS)
def test_what_does_not_end_is_ended_by_its_steps(code: str) -> None:
    text = f"count = 0 function f(go) count = count + 1 if go then {code} end return count end"
    instance = program(text).open()
    failure = failure_of(instance, True)
    assert (failure.text, failure.reason) == ("takes more than 200000 steps", BadReason.CODE_LIMIT)
    assert instance.call("f", (False,), NOW) == 2


@pytest.mark.parametrize(
    "code",
    [
        "local function g(n) return 1 + g(n) end return g(1)",
        "local function g() local ok, what = pcall(g) error(what) end return g()",
        "local t = setmetatable({}, {}) getmetatable(t).__index = t return t.x",
        "return ('x'):rep(100):gsub('.', function() return f(1) end)",
        "local s = 'x' while true do s = s .. s end",
        "return select(-1)",
        "return nil .. 'x'",
        "error({})",
        "error(nil)",
        "error(setmetatable({}, {__tostring = function() while true do end end}))",
        "return coroutine.yield()",
        "return 1 // 0",
        "return {[{}] = 1}",
        "return function() end",
        "return ('%d'):format(1.5)",
        "string.format('%p', {})",
        "for k in pairs({[{}] = 1}) do end",
        "setmetatable({}, {__gc = f})",
        "setmetatable({}, {__mode = 'k'})",
        "return os.execute('true')",
        "return load('return 1')",
        "return require('os')",
        "string.x.y = 1",
    ],
)
def test_what_fails_fails_for_the_event_alone(code: str) -> None:
    instance = program(f"count = 0 function f(go) count = count + 1 if go then {code} end return count end", 1_000_000).open()
    assert failure_of(instance, True).text
    before = instance.call("f", (False,), NOW)
    assert instance.call("f", (False,), NOW) == before + 1


def test_a_machine_sees_nothing_of_another_kind() -> None:
    names = ["python", "io.open", "debug.getinfo", "package.loaded", "os.getenv.x", "collectgarbage", "load", "string.dump"]
    for name in names:
        text = f"function f() local found = {name} if found then return found() end error('none') end"
        assert failure_of(program(text).open()).text


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("tostring({})", "table"),
        ("('%s'):format(print)", "function"),
        ("esp_toString(2.5) .. esp_toString(nil) .. esp_toString('a')", "2.5nila"),
        ("os.time()", 1),
        ("os.date('%Y-%m-%dT%H:%M:%S')", "1970-01-01T00:00:01"),
        ("os.time({year = 2024, month = 2, day = 29, hour = 0})", 1_709_164_800),
        ("os.date('!*t', 951782400).yday", 60),
        ("esp_parseDate('29/Feb/2024:12:00:01', '%d/%b/%Y:%H:%M:%S')", 1_709_208_001),
        ("esp_toJson({b = {1, 2.5}, a = 'x\"\\n'})", '{"a":"x\\"\\u000a","b":[1,2.5]}'),
        ('esp_parseJson(\'{"a": [1, 1.5, true, null, "\\\\u00e9\\\\ud83d\\\\ude00"]}\').a[5]', "é😀"),
        ("esp_parseJson('12345678901234567890')", 12345678901234567890.0),
        ("select('#', esp_parseJson('[1,]'))", 2),
        ("math.type(math.random(5))", "integer"),
        ("math.maxinteger + 1", -(2**63)),
    ],
)
def test_what_the_machine_gives(expression: str, value: Any) -> None:
    assert value_of(expression) == value


@pytest.mark.parametrize(
    "call",
    [
        "gsub('%s*,%s*', ',')",
        "match('^(.-),(.*)$')",
        "find('(%w+)=(%w+)')",
        "gsub('[^,]+', string.upper)",
        "gmatch('([^,]*),?')()",
        "match('.-b,.-b', -200)",
    ],
)
def test_long_texts_may_be_matched(call: str) -> None:
    instance = program(f"local s = ('ab , cde,'):rep(2000) function f() return s:{call} end", 1_000_000).open()
    instance.call("f", (), NOW)


def test_chance_follows_from_the_moment() -> None:
    instance = program("function f() return {math.random(1000000), math.random(0), math.random()} end").open()
    first, again, other = (instance.call("f", (), TimeAndSeed(0, seed)) for seed in (7, 7, 8))
    assert first == again != other
    assert value_of("math.random(math.mininteger, math.maxinteger) ~= nil") is True


def test_a_sort_keeps_equal_values_in_their_order() -> None:
    code = """
    function f()
      local t = {}
      for i = 1, 300 do t[i] = {key = i % 3, at = i} end
      table.sort(t, function(a, b) return a.key < b.key end)
      for i = 2, 300 do
        if t[i - 1].key == t[i].key and t[i - 1].at > t[i].at then return false end
      end
      return true
    end"""
    assert program(code).open().call("f", (), NOW) is True


STATEFUL = """
local shared, Account = {}, {}
Account.__index = Account
total, list, flags, callback = 0.5, {}, {[true] = 1, [false] = 2, [1.5] = "x"}, nil
local function bump(n) shared.n = (shared.n or 0) + n return shared.n end
local function drop(n) shared.n = nil return n end
function Account.new(n) return setmetatable({balance = n}, Account) end
function Account:add(n) self.balance = self.balance + n return self.balance end
function f(kind, n)
  if kind == 0 then return bump(n) end
  if kind == 1 then list[#list + 1] = {n, shared} return list[1][2] == shared end
  if kind == 2 then total = total / 3 + n return total end
  if kind == 3 then account = account or Account.new(n) return account:add(n) end
  if kind == 4 then callback = n % 2 == 0 and bump or drop return callback(n) end
  if kind == 5 then shared[n] = list shared["\\xff" .. n] = n return n end
  if kind == 6 then string = nil return n end
  if kind == 7 then if callback then return callback(n) end list = {} return #list end
  if kind == 8 then error("on purpose") end
  local text = "" for k, v in pairs(shared) do text = text .. tostring(k):byte(-1) .. tostring(v) end
  return text
end
"""


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-3, 3)), max_size=20))
@examples(0.7)
def test_restored_before_every_call_it_goes_on_with_the_same_bits(calls: list[tuple[int, int]]) -> None:
    """Laws Cut and Crash, for variables."""
    of = program(STATEFUL)
    running, restarted = of.open(), of.open()
    for kind, n in calls:
        restarted = restored(restarted, of)
        results = []
        for instance in (running, restarted):
            try:
                results.append(instance.call("f", (kind, n), NOW))
            except CodeFailure as failure:
                results.append(failure.text)
        assert results[0] == results[1]
        assert running.save() == restarted.save()


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ("kept = function() end", "variable kept holds a function"),
        ("kept = {a = {coroutine.create(f)}}", "variable kept.a[1] holds a coroutine"),
        ("inner = coroutine.wrap(f)", "variable inner holds a function"),
        ("kept = {[{}] = 1}", "variable kept holds a table with such a key"),
        ("string.trim = function() end", "variable string.trim holds a function, which"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name(change: str, name: str) -> None:
    instance = program(f"local inner function f() {change} return inner and 1 or 2 end").open()
    failure = failure_of(instance)
    assert failure.text.startswith(name)
    assert "transient" in failure.text
    assert failure.reason is BadReason.CODE_LIMIT
    assert failure_of(instance).text == failure.text


def test_a_transient_variable_is_nil_when_an_event_begins() -> None:
    text = "local inner function f() local was = {seen, inner} seen, inner = f, coroutine.create(f) return #was end"
    of = program(text, transient=("seen", "inner"))
    instance = of.open()
    assert [instance.call("f", (), NOW) for _ in range(3)] == [0, 0, 0]
    assert restored(instance, of).call("f", (), NOW) == 0


def test_variables_that_hold_too_much_end_the_window_not_the_engine() -> None:
    of = program("list = {} function f() list[#list + 1] = ('x'):rep(1000) return #list end", state_bytes_max=20_000)
    instance = of.open()
    results = []
    for _ in range(60):
        twin = restored(instance, of)
        try:
            results.append(instance.call("f", (), NOW))
        except CodeFailure as failure:
            assert failure.reason is BadReason.CODE_LIMIT
            results.append(failure.text)
        try:
            assert twin.call("f", (), NOW) == results[-1]
        except CodeFailure as failure:
            assert failure.text == results[-1]
    assert results[0] == 1
    assert results[-1] == "its variables hold more than 20000 bytes"


@pytest.mark.parametrize("code", ["x = = 1", "error('at once')", "while true do end", "nothing.there = 1", "\x1bLua", "f = 1"])
def test_code_that_cannot_be_loaded_is_a_mistake_of_the_project(code: str) -> None:
    with pytest.raises(ProjectError):
        program(code)


@given(st.data())
def test_damaged_variables_are_told_or_mean_something_else(data: st.DataObject) -> None:
    of = program("t = {a = 1, b = {c = 'x', d = 1.5}} local u = t function f() return u end")
    written = bytearray(of.open().save())
    at = data.draw(st.integers(0, len(written) - 1))
    written[at] ^= data.draw(st.integers(1, 255))
    try:
        of.open().load(bytes(written))
    except SnapshotDamaged:
        return


@given(
    st.lists(st.tuples(st.none() | st.integers(-(2**63), 2**63 - 1), st.none() | st.text(max_size=5)), max_size=30),
    st.integers(1, 9),
)
@examples(0.5)
def test_events_go_in_and_come_out_equal(rows: list[tuple[int | None, str | None]], made_max: int) -> None:
    """The number of calls depends on `made_max`."""
    columns = [pa.array([row[0] for row in rows], pa.int64()), pa.array([row[1] for row in rows], pa.string())]
    count = len(rows)
    zeros = np.zeros(count, np.int64)
    events = InputEvents("given", GIVEN, columns, np.ones(count, np.uint8), zeros, zeros.astype(np.uint64), np.arange(count))
    instance, found = program("function f(e) e.x = e.n and 0.5 return {e, {s = e.s}} end").open(), []
    while len(events):
        made = instance.make_events("f", events, MADE, made_max)
        assert not made.failed
        found += zip(*(column.to_pylist() for column in made.columns), strict=True)
        events = events.slice(made.seen_count, len(events))
    assert found == [each for n, s in rows for each in ((n, s, None if n is None else 0.5), (None, s, None))]


def test_a_copy_of_the_state_goes_on_like_it() -> None:
    """Also if the state cannot be kept: an engine that has to process rows again continues."""
    of = program("n, kept = 0, nil function f(set) n = n + 1 if set then kept = f and function() end end return n end")
    state: CodeState[None] = CodeState(of)
    state.live_instance().call("f", (False,), NOW)
    twin = copy.deepcopy(state)
    assert twin.live_instance().call("f", (False,), NOW) == state.live_instance().call("f", (False,), NOW) == 2
    state.live_instance().call("f", (True,), NOW)
    twin = copy.deepcopy(state)
    with pytest.raises(CodeFailure, match="variable kept holds a function"):
        for _ in range(9):
            twin.live_instance().call("f", (False,), NOW)


def test_a_snapshot_of_what_cannot_be_kept_is_not_written() -> None:
    """The variables were not checked before."""
    of = program("t = {} for i = 1, 100 do t[i] = i end function f(set) if set then kept = function() end end end")
    state: CodeState[None] = CodeState(of)
    state.live_instance().call("f", (False,), NOW)
    state.live_instance().call("f", (True,), NOW)
    with pytest.raises(StateError, match="cannot be kept") as refused:
        state.freeze().columns()
    assert "variable kept holds a function" in refused.value.detail
