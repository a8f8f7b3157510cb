"""Two engines that run the same Lua code: one continues, one is restored before every event (laws Cut and Crash, for user code).

The layout of tables with gaps depends on their history, which a restore changes; no result of code may depend on it.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import ProjectError
from hotspare.model.code import Code, CodeLimits, Language, Script
from hotspare.scripting.contract import CodeFailure, Instance, Program, ProgramText, TimeAndSeed
from hotspare.scripting.languages import compile_user_code

ASKS = """
#t[n]
#t[n].x
table.concat(t[n], ",")
{table.unpack(t[n])}
select("#", table.unpack(t[n]))
esp_toJson(t[n])
rawlen(t[n])
table.insert(t[n], v)
table.insert(t[n], 1, v)
table.insert(t[n], #t[n] + 1, v)
table.remove(t[n])
table.remove(t[n], 1)
table.sort(t[n])
table.sort(t[n], function(a, b) return a > b end)
walked(pairs, t[n])
walked(ipairs, t[n])
next(t[n])
tostring(t[n]) .. tostring(walked) .. tostring(coroutine.running())
string.format("%s %5.1f %q", t[n], v / 3, v)
v / 3 .. "" .. v // 1 .. 1e15 * v .. 2^53
#t[n] ^ 2
#"abc" + #t[n] + -#t[n] + (#{...})
table.move(t[n], 1, #t[n], 2)
lengths(t[n], t[n])
math.random(1000)
pcall(table.concat, t[n])
"""
CODE = """
t, sum = {}, 0
for n = 1, 3 do t[n] = {x = {}} end
local function walked(walk, t)
  local keys = {}
  for k, v in walk(t) do keys[#keys + 1] = tostring(k) .. "=" .. tostring(v) end
  return table.concat(keys, " ")
end
local function lengths(...) local all = {...} return #all[1] + #all[2] .. #[[x]] end
local asks = {
ASKED
}
function f(kind, n, k, v)
  if kind == "put" then t[n][k] = v
  elseif kind == "drop" then t[n][k] = nil
  elseif kind == "fill" then for i = 1, k do t[n][i] = v + i end
  elseif kind == "back" then for i = k, 1, -1 do t[n][i] = v end
  elseif kind == "thin" then for i = 1, k do if i % 3 ~= v % 3 then t[n][i] = nil end end
  elseif kind == "made" then t[n] = {1, nil, v, nil, nil, v} t[n].x = {v, nil, v}
  elseif kind == "alias" then t[n] = t[v % 3 + 1]
  else
    local answer = table.pack(asks[kind](n, v))
    if answer.n == 0 then return esp_toJson(t[n]) end
    return answer[1]
  end
end
""".replace("ASKED", "\n".join(f"  function(n, v, ...) return {ask} end," for ask in ASKS.strip().split("\n")))
COUNT = len(ASKS.strip().split("\n"))
CALLS = st.lists(
    st.tuples(
        st.one_of(st.sampled_from(["put", "drop", "fill", "back", "thin", "made", "alias"]), st.integers(1, COUNT)),
        st.integers(1, 3),
        st.integers(-1, 70),
        st.integers(1, 9),
    ),
    min_size=2,
    max_size=30,
)


def program(code: str) -> Program:
    script = Script(Language.LUA, Code(code), "f", limits=CodeLimits(200_000, 100_000))
    return compile_user_code(ProgramText("q/w", script))


def answer_of(instance: Instance, arguments: tuple[Any, ...], number: int) -> Any:
    try:
        return instance.call("f", arguments, TimeAndSeed(number, number))
    except CodeFailure as failure:
        return failure.text


ADVERSARY = program(CODE)


@given(CALLS)
def test_no_question_tells_whether_an_engine_was_restored(calls: list[tuple[Any, ...]]) -> None:
    running = ADVERSARY.open()
    for number, call in enumerate(calls):
        restarted = ADVERSARY.open()
        restarted.load(running.save())
        answers = answer_of(running, call, number), answer_of(restarted, call, number)
        assert repr(answers[0]) == repr(answers[1])
        assert running.save() == restarted.save()


def test_a_length_of_a_table_with_gaps_follows_from_what_it_holds() -> None:
    """Lua itself returns 4 for the first, and 1 for the second."""
    of = program("t = {1, nil, nil, 4} u = {1} u[4] = 4 function f() t[9] = nil return {#t, #u, #t == #u} end")
    running, restarted = of.open(), of.open()
    restarted.load(running.save())
    assert running.call("f", (), TimeAndSeed(0, 0)) == restarted.call("f", (), TimeAndSeed(0, 0)) == [1, 1, True]


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("local t = {x = {y = {1, 2}}} return #t.x.y + 1", 3),
        ("local t = {f = function(self, n) return {n, n} end} return #t:f(1) * 2 .. ''", "4"),
        ("local function g(s) return s end return #g'abc' + #g[[de]] + #g{1}", 6),
        ("return #'its' --[[ # ]] + #[==[ #]] ]==] -- #", 8),
        ("return #'a\\'#' + #\"\\z\n  b#\"", 5),
        ("local t = {{1}, {1, 2}} return #t[#t] + # --[[x]] t[1]", 3),
        ("local length_, t = 7, {1} return #t + length_", 8),
        ("return #{1, 2, 3} // 2 + #({1}) % 2", 2),
        ("local n = 0 for i = 1, #{5, 6} do n = n + i end return n", 3),
        ("return (function(...) return #{...} + select('#', ...) end)(1, 2)", 4),
        ("local t = setmetatable({}, {__len = function() return 9 end}) return #t + rawlen(t)", 9),
        ("local t = setmetatable({1, 2}, {__index = function() return 1 end}) return #t", 2),
        ("local n = #{function() if true then return 1 end end} return n", 1),
        ("return not #{} == false", True),
        ("return #'x' == 1 and ~#'xy' & 7", 5),
        ("return 2^-#'xy'", 0.25),
        ("return select(2, pcall(function() return #nil end)):gsub('^.-: ', '')", "attempt to get length of a nil value"),
        ("return string.format('%d%%p', 5)", "5%p"),
        (
            "local t = {} for i = 1, 100 do t[#t + 1] = i end table.remove(t, 1) table.insert(t, 50, 0) return #t .. t[51]",
            "10051",
        ),
        ("local t = {1} return table.remove(t) + #t + select('#', table.remove(t))", 2),
        ("local joined_, a, b = 'x', 1, 2.5 return joined_ .. a .. b .. '.' .. 2^63", "x12.5.9.2233720368548e+18"),
        ("return 1 .. 2 == '12' and 'a' .. -1 .. -#'x' == 'a-1-1' and 'a' .. 1 + 2 * 3 .. 'b'", "a7b"),
        ("local t = {'a' .. 'b', k = 'c' .. 'd'; ['e' .. 'f'] = 'g' .. 'h'} return t[1] .. t.k .. t.ef", "abcdgh"),
        (
            "local f = function(...) return ... .. 'x', 'y' end return f('a', 'b') .. (f'c') .. #f{} ",
            "line 1: attempt to concatenate a table value",
        ),
        ("local x = 'a' local y = x .. 'b' x = y .. x; (function() x = x .. 'c' end)() return x", "abac"),
        ("local function f() return 'a', 'b' end return select('#', f() .. f()) .. ('x' .. f())", "1xa"),
        ("if 'a' .. 'b' == 'ab' then for i = 1, 1 do return 'y' .. i end end", "y1"),
        ("local n = '' repeat n = n .. 1 until n .. 1 == '111' return n .. [[ .. ]] --[[ .. ]] .. '..'", "11 .. .."),
        (
            "local o = setmetatable({}, {__concat = function(a, b) return type(a) .. type(b) end}) return 1 .. 2 .. o .. 'x'",
            "12tablestring",
        ),
        (
            "return select(2, pcall(function() return 'a' .. 'b' .. nil end)):gsub('^.-: ', '')",
            "attempt to concatenate a nil value",
        ),
        ("return select(2, pcall(table.insert, {1}, 5, 1))", "bad argument #2 to 'insert' (position out of bounds)"),
        ("return select(2, pcall(table.remove, {1}, 5))", "bad argument #2 to 'remove' (position out of bounds)"),
        ("local t = {3, 1, 2} table.sort(t) return table.concat(t)", "123"),
    ],
)
def test_code_means_what_lua_says(code: str, value: Any) -> None:
    """A text has the same meaning with Lua's own lengths and with the machine's."""
    assert answer_of(program(f"function f() {code}\nend").open(), (), 0) == value


def test_a_mistake_is_told_with_its_own_line() -> None:
    of = program("function f(t)\n  local n = #{} +\n    #t\n  return n\nend\nlocal x = #{} return x")
    assert "line 3: attempt to get length of a nil value" in answer_of(of.open(), (), 0)


@pytest.mark.parametrize("code", ["m = {}\nm.__mode = 'k'", "\nrawset(getmetatable(t), '__gc', f)", "\nm['__mode'] = 'v'"])
def test_a_table_that_becomes_weak_later_is_a_mistake_of_the_project(code: str) -> None:
    with pytest.raises(ProjectError, match="depend on garbage collection"):
        program(f"function f() {code} end")
