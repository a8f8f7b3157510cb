# ruff: noqa: E501 - programs stand on one line each
"""Random small programs in Lua and Python that build, change and read what they keep: numbers, texts, lists, tables within each other and
under several names, closures, classes, times. A program is a function of its seed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from hotspare.model.code import Language

DEPTH_MAX = 3
"""Of expressions and statements within each other."""
_HOLE = re.compile(r"\{(int|float|text|any|list|dict|i|f|s|l|d|stmt|small)\}")


class Program(NamedTuple):
    """`code` defines the function `f`, which is called with an event and a context."""

    language: Language
    code: str


@dataclass(frozen=True)
class Grammar:
    """Templates by kind; a hole is filled with an expression of its kind, the letters `i f s l d` with a variable of one. The first of
    each kind needs no others."""

    setup: str
    kinds: Mapping[str, Sequence[str]]
    statements: Sequence[str]
    rare: Sequence[str]
    """Statements that most programs do without: errors, and what cannot be kept."""
    compound: str
    body: str


_VARIABLES = {"i": ("i1", "i2"), "f": ("f1", "f2"), "s": ("s1", "s2"), "l": ("l1", "l2", "l3"), "d": ("d1", "d2", "d3")}
_LUA = Grammar(
    setup="""i1, f1, s1, l1, d1 = 1, 0.5, "a", {}, {}
local i2, f2, s2, l2, d2 = 2, 1.25, "b", {1, "x"}, {a = 1, [2] = {3}}
l3, d3 = l2, d2
first = os.time()
local function counter(step)
  local n = 0
  return function(d) n = n + step * d return n end
end
local up, down = counter(1), counter(-2)
op = up
local Account = {}
Account.__index = Account
Account.__eq = function(a, b) return true end
Account.__tostring = function(a) return "account " .. a.sum end
function Account.new() return setmetatable({sum = 0, log = {}}, Account) end
function Account:add(n)
  self.sum = (self.sum + n) % 100003
  self.log[#self.log % 3 + 1] = n
  return self.sum
end
account = Account.new()
local function show(v, depth)
  if type(v) ~= "table" then return type(v) == "number" and string.format("%.10g", v) or tostring(v) end
  if depth <= 0 then return "..." end
  local s, n = "{", 0
  for k, inner in pairs(v) do
    n = n + 1
    if n > 5 then break end
    s = s .. tostring(k) .. "=" .. show(inner, depth - 1) .. ";"
  end
  return s .. "}"
end
""",
    kinds={
        "int": (
            "{small}",
            "{i}",
            "e.n",
            "#{list}",
            "({int} + {int}) % 100003",
            "({int} * {int}) % 1009",
            "{int} // ({int} % 7 + 1)",
            "#{text}",
            "op({small})",
            "up({small}) % 997",
            "account:add({int})",
            "math.random({small} + 1)",
            "os.time() % 86400",
            "{int} ~ {int}",
            "math.floor({float}) % 31",
            "rawlen({list})",
            "(tonumber({text}) or {small}) // 1",
            "os.date('*t', {int}).yday",
        ),
        "float": (
            "{small}.5",
            "{f}",
            "e.x",
            "({float} + {float}) % 1e6",
            "{float} / {float}",
            "{int} / {int}",
            "math.sqrt({int})",
            "-({float})",
            "{int} * 0.1",
        ),
        "text": (
            "'t{small}'",
            "{s}",
            "e.s",
            "({text} .. {text}):sub(-24)",
            "tostring({int})",
            "show({any}, 2)",
            "({text}):upper()",
            "({text}):rep({small} % 3)",
            "table.concat({'a', {text}, {int}}, ',')",
            "os.date('%Y-%m-%d %H:%M', {int} * 3600)",
            "esp_toJson({{int}, x = {text}})",
            "({text}):gsub('%d', '<%0>')",
            "string.format('%5.2f|%s|%q', {float}, {list}, {int})",
            "tostring(account)",
            "('x'):byte() .. {text}",
        ),
        "any": (
            "{int}",
            "{text}",
            "{float}",
            "{list}",
            "{dict}",
            "({dict})[{text}]",
            "({dict})[{int} % 5]",
            "({list})[1]",
            "{int} > {int}",
            "next({dict})",
            "account",
        ),
        "list": ("{l}", "{l}", "{{any}, {any}}", "table.pack(table.unpack({list}, 1, 2))", "account.log"),
        "dict": ("{d}", "{d}", "{a = {any}, [{int}] = {any}}", "setmetatable({k = {any}}, Account)"),
    },
    statements=(
        "{i} = {int}",
        "{f} = {float}",
        "{s} = ({text}):sub(-24)",
        "{l}[#{l} + 1] = {any}",
        "{l} = {list}",
        "{d} = {dict}",
        "{d}[({text}):sub(1, 6)] = {any}",
        "{d}[{int} % 5] = {any}",
        "{d}[{text}] = nil",
        "local k = next({d}) if k ~= nil then {d}[k] = {any} end",
        "for k, v in pairs({d}) do {s} = ({s} .. show(k, 1) .. show(v, 1)):sub(-24) end",
        "table.remove({l}, 1)",
        "while #{l} > 6 do table.remove({l}) end",
        "table.sort({l}, function(a, b) return show(a, 1) < show(b, 1) end)",
        "op = {int} % 2 == 0 and up or down",
        "account = {int} % 9 == 0 and Account.new() or account",
        "{d}.self = {d}",
        "string.seen = ({int}) % 11",
        "for i = 1, {small} do {stmt} end",
        "pcall(function() {stmt} error({text}) end)",
        "local co = coroutine.wrap(function(x) {stmt} coroutine.yield(x) end) {s} = show(co({any}), 1)",
        "setmetatable({d}, {int} % 2 == 0 and Account or nil)",
        "for k in pairs({d}) do if show(k, 1) > {text} then {d}[k] = nil end end",
    ),
    rare=(
        "error({text})",
        "if {int} % 5 == 0 then error({text}) end",
        "hidden = function() return {int} end",
        "d1[{}] = 1",
        "local n = nil + {int}",
        "co = coroutine.create(show)",
    ),
    compound="if {int} % 2 == 0 then {stmt} else {stmt} end",
    body="function f(e, context)\n{statements}\n  return {n = ({int}) % 1000000 | 0, s = show({any}, 3) .. {s}, x = {float}, t = first + e.n}\nend\n",
)
_PYTHON = Grammar(
    setup="""import datetime
import json
import math
import random
import re
from collections import defaultdict
from enum import Enum

i1, f1, s1, l1, d1 = 1, 0.5, "a", [], {}
i2, f2, s2, l2, d2 = 2, 1.25, "b", [1, "x"], {"a": 1, 2: [3]}
l3, d3 = l2, d2
seen = set()
groups = defaultdict(list)
WORD = re.compile("[a-z]+")


class Color(Enum):
    RED = 1
    BLUE = 2


class Account:
    limit = 100003

    def __init__(self, kept):
        self.kept = kept

    def add(self, n):
        self.kept["sum"] = (self.kept.get("sum", 0) + n) % Account.limit
        return self.kept["sum"]


sums = {}


def counter(step):
    return lambda d: step * d


up, down = counter(1), counter(-2)


def show(v, depth):
    if isinstance(v, dict):
        if depth <= 0:
            return "..."
        return "{" + ";".join(f"{show(k, 1)}={show(x, depth - 1)}" for k, x in list(v.items())[:5]) + "}"
    if isinstance(v, (list, tuple, set)):
        return "[" + ",".join(show(x, depth - 1) for x in list(v)[:5]) + "]" if depth > 0 else "..."
    return f"{v:.10g}" if isinstance(v, float) else str(v)


""",
    kinds={
        "int": (
            "{small}",
            "{i}",
            "e['n']",
            "len({list})",
            "({int} + {int}) % 100003",
            "({int} * {int}) % 1009",
            "{int} // ({int} % 7 + 1)",
            "len({text})",
            "up({small})",
            "Account(sums).add({int})",
            "random.randint(0, {small})",
            "datetime.datetime.now().minute",
            "({int} ^ {int})",
            "len(seen)",
            "len({dict})",
            "int(datetime.datetime.now().timestamp()) % 1000",
            "sum([x for x in {list} if isinstance(x, int)]) % 10007",
        ),
        "float": (
            "{small}.5",
            "{f}",
            "e['x']",
            "({float} + {float}) % 1e6",
            "{float} / ({float} or 1.0)",
            "{int} / ({int} or 3)",
            "math.sqrt(abs({int}))",
            "-({float})",
            "{int} * 0.1",
        ),
        "text": (
            "'t{small}'",
            "{s}",
            "e['s']",
            "({text} + {text})[-24:]",
            "str({int})",
            "show({any}, 2)",
            "({text}).upper()",
            "({text}) * ({small} % 3)",
            "','.join([{text}, {text}])",
            "datetime.datetime.fromtimestamp({int} * 3600).isoformat()",
            "json.dumps([{int}, {text}])",
            "WORD.sub('<>', {text})",
            "'%5.2f|%r' % ({float}, {int})",
            "show(sorted(seen), 1)",
            "show(groups, 2)",
            "datetime.date.today().strftime('%Y-%m-%d %A')",
            "datetime.datetime.now().strftime('%H:%M %s')",
            "str(Color({small} % 2 + 1))",
        ),
        "any": (
            "{int}",
            "{text}",
            "{float}",
            "{list}",
            "{dict}",
            "{dict}.get({text})",
            "{dict}.get({int} % 5)",
            "({list} or [0])[0]",
            "{int} > {int}",
            "({int}, {text})",
            "next(iter({dict}), None)",
        ),
        "list": (
            "{l}",
            "{l}",
            "[{any}, {any}]",
            "list({dict}.values())[:2]",
            "[show(x, 1) for x in {list}][:3]",
            "groups[{int} % 3]",
        ),
        "dict": ("{d}", "{d}", "{'a': {any}, {int}: {any}}", "dict(list({dict}.items())[:2])", "sums"),
    },
    statements=(
        "{i} = {int}",
        "{f} = {float}",
        "{s} = ({text})[-24:]",
        "{l}.append({any})",
        "{l} = {list}",
        "{d} = {dict}",
        "{d}[({text})[:6]] = {any}",
        "{d}[{int} % 5] = {any}",
        "{d}.pop({text}, None)",
        "{d}[next(iter({d}), 'k')] = {any}",
        "{s} = ''.join([show(k, 1) + show(v, 1) for k, v in {d}.items()])[-24:]",
        "del {l}[:1]",
        "del {l}[6:]",
        "{l}.sort(key=lambda x: show(x, 1))",
        "seen.add({int} % 7)",
        "seen.discard({small})",
        "groups[{int} % 3].append({any})",
        "groups.pop({int} % 3, None)",
        "{d}['self'] = {d}",
        "sums.clear()",
        "{l}.extend([{any}] * ({small} % 3))",
        "{d}.update({dict})",
        "{l}.reverse()",
    ),
    rare=(
        "raise ValueError({text})",
        "if {int} % 5 == 0: raise KeyError({text})",
        "d1['hidden'] = show",
        "{s} = str(getattr(Color.RED, 'label', 'none')); Color.RED.label = 'x' + {s}",
        "l1.append(object)",
        "{i} = None + {int}",
        "{l}.append((x for x in [1]))",
    ),
    compound="if {int} % 2 == 0:\n    {stmt}\nelse:\n    {stmt}",
    body="def f(e, context):\n    global i1, i2, f1, f2, s1, s2, l1, l2, l3, d1, d2, d3\n{statements}\n"
    "    return {'n': {int} % 1000000, 's': show({any}, 3) + {s}, 'x': {float}, 't': 1_700_000_000 + e['n']}\n",
)
_GRAMMARS = {Language.LUA: _LUA, Language.PYTHON: _PYTHON}


class _Maker:
    def __init__(self, random: Random, grammar: Grammar) -> None:
        self._random, self._grammar = random, grammar

    def filled(self, template: str, depth: int) -> str:
        return _HOLE.sub(lambda hole: self._of_kind(hole[1], depth), template)

    def _of_kind(self, kind: str, depth: int) -> str:
        if kind in _VARIABLES:
            return self._random.choice(_VARIABLES[kind])
        if kind == "small":
            return str(self._random.randint(0, 9))
        if kind == "stmt":
            return self.statement(depth - 1)
        templates = self._grammar.kinds[kind]
        return self.filled(self._random.choice(templates if depth > 0 else templates[:2]), depth - 1)

    def statement(self, depth: int) -> str:
        plain = [each for each in self._grammar.statements if depth > 1 or "{stmt}" not in each]
        return self.filled(self._random.choice(plain), depth)

    def event_function(self) -> str:
        statements = []
        for _ in range(self._random.randint(3, 9)):
            is_compound = self._random.random() < 0.2
            statements.append(self.filled(self._grammar.compound, 2) if is_compound else self.statement(DEPTH_MAX))
        if self._random.random() < 0.15:
            statements.insert(self._random.randint(0, len(statements)), self.filled(self._random.choice(self._grammar.rare), 1))
        lines = "\n".join("    " + line for statement in statements for line in statement.split("\n"))
        return self.filled(self._grammar.body, DEPTH_MAX).replace("{statements}", lines)


def program(seed: int) -> Program:
    random = Random(seed)
    language = random.choice((Language.LUA, Language.PYTHON))
    grammar = _GRAMMARS[language]
    return Program(language, grammar.setup + _Maker(random, grammar).event_function())
