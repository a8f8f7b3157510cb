"""The shared state of a project's Lua code: properties, listeners, snippets, their limits, and what is kept (SPEC A38, F4)."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from hotspare.base.errors import ProjectError, SnapshotDamaged
from hotspare.model.code import Code, CodeLimits, Language, Module, ModuleUse, Script
from hotspare.rows.bad_reasons import BadReason
from hotspare.scripting.contract import CodeFailure, Instance, ProgramText, TimeAndSeed
from hotspare.scripting.languages import compile_shared, compile_user_code
from hotspare.scripting.shared import SHARED_PAGE, InitialSharedState, Properties, StepSharedCode
from hotspare.table.pages import Column, Page

NOW = TimeAndSeed(1_500_000, 7)


def script_of(code: str, init: str = "", steps_max: int = 200_000) -> Script:
    return Script(Language.LUA, Code(code), "f", init=init, limits=CodeLimits(steps_max))


def snippet(code: str, name: str = "s", init: str = "") -> Module:
    return Module(name, Language.LUA, Code(code), ModuleUse.SNIPPET, init)


class Ward:
    """The code of one window with its shared state."""

    def __init__(self, code: str, *snippets: Module, init: str = "", steps_max: int = 200_000) -> None:
        self.text = ProgramText("q/w", script_of(code, init, steps_max), modules=snippets)
        found = compile_shared({self.text.script: snippets})
        assert found is not None
        self.state: InitialSharedState = found
        self.pages: dict[str, Page] = {SHARED_PAGE: found.open()}
        self.instance = self._joined(compile_user_code(self.text).open())

    def _joined(self, instance: Instance) -> Instance:
        self.state.attach_pages(self.pages)
        any_part = self.pages[SHARED_PAGE].parts.get("snippet s")
        instance.attach_shared_code(getattr(any_part, "shared", None))
        return instance

    def call(self, *arguments: Any) -> Any:
        return self.instance.call("f", arguments, NOW)

    def failure(self, *arguments: Any) -> CodeFailure:
        with pytest.raises(CodeFailure) as failure:
            self.call(*arguments)
        return failure.value

    def restart(self) -> None:
        """Continues from the kept state in a new engine."""
        saved, parts = self.instance.save(), {name: part.columns() for name, part in self.pages[SHARED_PAGE].freeze().parts.items()}
        self.pages = {SHARED_PAGE: self.state.open()}
        for name, part in self.pages[SHARED_PAGE].parts.items():
            part.load(parts[name])
        self.instance = self._joined(compile_user_code(self.text).open())
        self.instance.load(saved)


NOTHING = snippet("x = 1")


def test_properties_are_copies_of_plain_values() -> None:
    code = """
    function f(value)
      esp_setProperty({name = "p", value = value})
      local first = esp_getProperty("p")
      if type(first) == "table" then first.added = 1 end
      return {esp_getProperty({name = "p"}), esp_getProperty("absent") == nil}
    end"""
    ward = Ward(code, NOTHING)
    for value in (1, 2.5, "text", True, [1, 2], {"a": {"b": "c"}}):
        assert ward.call(value) == [value, True]
    assert "a function is not a plain value" in Ward("function f() esp_setProperty('p', f) end", NOTHING).failure().text


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("function f() esp_setProperty({value = 1}) end", "line 1: a property needs a name"),
        ("function f() local x = esp_getProperty(1) end", "line 1: a property needs a name"),
        ("function f() esp_addPropertyListener({name = 'p', change = 'f'}) end", "listeners are added by the function init"),
        ("function f() esp_call({snippet = 'no', func = 'g'}) end", "line 1: there is no snippet no"),
        ("function f() esp_call({snippet = 's', func = 'g'}) end", "snippet s: there is no function g"),
        ("function f() esp_call('s') end", "esp_call needs"),
        ("function f() esp_call({snippet = 's', func = 'fails'}, 1) end", "line 1: snippet s: line 2: found 1"),
        ("function f() esp_call({snippet = 's', func = 'again'}) end", "snippet s is called while it runs"),
        ("function f() esp_setProperty('p', 1) esp_subscribe({}) end", "esp_subscribe is not available to user code"),
        ("function f() local p = esp_getProperty p('x') e = esp_call esp_publish() end", "esp_publish is not available"),
    ],
)
def test_what_cannot_be_fails_where_it_is_asked_for(code: str, message: str) -> None:
    own = snippet(
        'function again() return esp_call({snippet = "s", func = "again"}) end\nfunction fails(x) error("found " .. x) end', "s"
    )
    assert message in Ward(code, own).failure().text


def test_code_that_names_nothing_of_it_shares_nothing() -> None:
    plain = script_of("function f() return _G['esp_' .. 'getProperty']('p') end")
    assert compile_shared({plain: ()}) is None
    with pytest.raises(CodeFailure, match="shares anything"):
        compile_user_code(ProgramText("q/w", plain)).open().call("f", (), NOW)


@pytest.mark.parametrize(
    ("code", "init", "message"),
    [
        ("esp_setProperty('p', 1) function f() end", "", "when events come"),
        ("function begin() return esp_getProperty('p') end function f() end", "begin", "function begin of window q/w fails"),
    ],
)
def test_windows_have_properties_when_events_come(code: str, init: str, message: str) -> None:
    with pytest.raises(ProjectError, match=message):
        compile_user_code(ProgramText("q/w", script_of(code, init)))


@pytest.mark.parametrize(
    ("code", "init", "message"),
    [
        ("function begin(", "", "the Lua code of snippet s cannot be loaded"),
        ("x = 1", "begin", "the code of snippet s defines no function begin"),
        ("function begin() error('never') end", "begin", "function begin of snippet s fails"),
    ],
)
def test_a_snippet_that_cannot_begin_is_a_mistake(code: str, init: str, message: str) -> None:
    own = snippet(code, init=init)
    with pytest.raises(ProjectError) as raised:
        compile_shared({script_of("function f() return esp_getProperty('p') end"): (own,)})
    assert any(message in mistake.message for mistake in raised.value.mistakes), raised.value.mistakes


def test_snippets_begin_one_after_the_other_and_see_what_was_set_before() -> None:
    first = snippet("function begin() esp_setProperty('p', {n = 1}) end", "a", "begin")
    second = snippet("function begin() n = esp_getProperty('p').n + 1 end function g() n = n + 1 return n end", "s", "begin")
    ward = Ward("function f() return esp_call({snippet = 's', func = 'g'}) end", first, second)
    assert [ward.call(), ward.call()] == [3, 4]
    ward.restart()
    assert ward.call() == 5


LISTENING = """
local log = ""
function begin()
  esp_addPropertyListener({name = "p", change = "told", init = true})
  esp_addPropertyListener({name = "p", change = "changed"})
end
function told(property) log = log .. " told " .. property.name .. tostring(property.value) end
function changed(property) log = log .. " changed " .. tostring(property.value) end
function f(...)
  local before = log
  for _, value in ipairs({...}) do esp_setProperty("p", value) end
  if select("#", ...) == 0 then esp_setProperty("p", nil) end
  return before
end
"""


@pytest.mark.parametrize("restarts", [False, True])
def test_listeners_are_told_the_newest_value_before_the_next_event(restarts: bool) -> None:
    own = snippet("function begin() esp_setProperty('p', 0) end", init="begin")
    ward, found = Ward(LISTENING, own, init="begin"), []
    for arguments in ((), (1, 2), (3,), (3,), (4,)):
        found.append(ward.call(*arguments))
        if restarts:
            ward.restart()
    first = " told p0"
    gone = f"{first} told pnil changed nil"
    two = f"{gone} told p2 changed 2"
    three = f"{two} told p3 changed 3"
    assert found == [first, gone, two, three, f"{three} told p3 changed 3"]


def test_a_listener_that_fails_fails_the_event_once() -> None:
    code = """
    esp_addPropertyListener({name = "p", change = "changed"})
    function changed() error("no") end
    function f() esp_setProperty("p", 1) return 1 end"""
    ward = Ward(code, NOTHING)
    assert ward.call() == 1
    assert "no" in ward.failure().text
    assert ward.call() == 1


def test_steps_of_a_snippet_count_for_who_calls_it() -> None:
    own = snippet("function work(n) for i = 1, n do x = i end end")
    ward = Ward("function f(k) for i = 1, k do esp_call({snippet = 's', func = 'work'}, 10000) end end", own)
    ward.call(3)
    failure = ward.failure(100)
    assert failure.reason is BadReason.CODE_LIMIT
    endless = Ward("function f() esp_call({snippet = 's', func = 'g'}) end", snippet("function g() while true do end end"))
    assert "takes more than 1000000 steps" in endless.failure().text


def test_properties_have_a_limit() -> None:
    ward = Ward("function f(name, length) esp_setProperty(name, ('x'):rep(length)) return 1 end", NOTHING)
    ward.instance.attach_shared_code(StepSharedCode(Properties(bytes_max=1000), {}))
    assert ward.call("a", 700) == 1
    assert "hold more than 1000 bytes" in ward.failure("b", 400).text
    assert ward.call("a", 10) == ward.call("b", 400) == 1


def test_what_is_kept_is_the_same_however_it_came_about() -> None:
    one, other = Properties(), Properties()
    for properties, names in ((one, "ab"), (other, "ba")):
        for name in names:
            properties.set(name, {"n": 1})
    one.set("a", 5)
    other.set("a", 5)
    twin = Properties()
    twin.load(one.freeze().columns())
    assert bytes(twin.columns()["values"].array) == bytes(one.columns()["values"].array)
    assert copy.deepcopy(one).get("a") == one.get("a")
    assert other.get("b")[0] == {"n": 1}
    damaged = bytes(one.columns()["values"].array).replace(b"held", b"hold")
    with pytest.raises(SnapshotDamaged):
        Properties().load({"values": Column(np.frombuffer(damaged, np.uint8))})
