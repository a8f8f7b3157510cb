"""Random small programs in Lua and Python that build, change and read state: numbers, texts, lists, nested tables with
several names, closures, classes, times. A program is a function of its seed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple

from hotspare.model.code import Language

DEPTH_MAX = 3
"""The depth of nested expressions and statements."""
_HOLE = re.compile(r"\{(int|float|text|any|list|dict|i|f|s|l|d|stmt|small)\}")


class Program(NamedTuple):
    """`code` defines the function `f`, which is called with an event and a context."""

    language: Language
    code: str


class Grammar(NamedTuple):
    """Templates of expressions and statements, by kind. A hole is filled with an expression of its kind, a hole `i f s
    l d` with a variable. The first two templates of a kind have no expressions in them. `rare` statements fail, or
    make state that cannot be kept."""

    setup: str
    templates: Mapping[str, Sequence[str]]
    compound: str
    body: str

    @classmethod
    def of(cls, setup: str, templates: str, compound: str, body: str) -> Grammar:
        """`templates`: one per line, after its kind."""
        by_kind: dict[str, list[str]] = {}
        for line in templates.strip().split("\n"):
            kind, _, template = line.partition(": ")
            by_kind.setdefault(kind, []).append(template)
        return cls(setup, by_kind, compound, body)


_VARIABLES = {"i": ("i1", "i2"), "f": ("f1", "f2"), "s": ("s1", "s2"), "l": ("l1", "l2", "l3"), "d": ("d1", "d2", "d3")}
_LUA = Grammar.of(
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
    templates=r"""
int: {small}
int: {i}
int: e.n
int: #{list}
int: ({int} + {int}) % 100003
int: ({int} * {int}) % 1009
int: {int} // ({int} % 7 + 1)
int: #{text}
int: op({small})
int: up({small}) % 997
int: account:add({int})
int: math.random({small} + 1)
int: os.time() % 86400
int: {int} ~ {int}
int: math.floor({float}) % 31
int: rawlen({list})
int: (tonumber({text}) or {small}) // 1
int: os.date('*t', {int}).yday
float: {small}.5
float: {f}
float: e.x
float: ({float} + {float}) % 1e6
float: {float} / {float}
float: {int} / {int}
float: math.sqrt({int})
float: -({float})
float: {int} * 0.1
text: 't{small}'
text: {s}
text: e.s
text: ({text} .. {text}):sub(-24)
text: tostring({int})
text: show({any}, 2)
text: ({text}):upper()
text: ({text}):rep({small} % 3)
text: table.concat({'a', {text}, {int}}, ',')
text: os.date('%Y-%m-%d %H:%M', {int} * 3600)
text: esp_toJson({{int}, x = {text}})
text: ({text}):gsub('%d', '<%0>')
text: string.format('%5.2f|%s|%q', {float}, {list}, {int})
text: tostring(account)
text: ('x'):byte() .. {text}
any: {int}
any: {text}
any: {float}
any: {list}
any: {dict}
any: ({dict})[{text}]
any: ({dict})[{int} % 5]
any: ({list})[1]
any: {int} > {int}
any: next({dict})
any: account
list: {l}
list: {l}
list: {{any}, {any}}
list: table.pack(table.unpack({list}, 1, 2))
list: account.log
dict: {d}
dict: {d}
dict: {a = {any}, [{int}] = {any}}
dict: setmetatable({k = {any}}, Account)
statement: {i} = {int}
statement: {f} = {float}
statement: {s} = ({text}):sub(-24)
statement: {l}[#{l} + 1] = {any}
statement: {l} = {list}
statement: {d} = {dict}
statement: {d}[({text}):sub(1, 6)] = {any}
statement: {d}[{int} % 5] = {any}
statement: {d}[{text}] = nil
statement: local k = next({d}) if k ~= nil then {d}[k] = {any} end
statement: for k, v in pairs({d}) do {s} = ({s} .. show(k, 1) .. show(v, 1)):sub(-24) end
statement: table.remove({l}, 1)
statement: while #{l} > 6 do table.remove({l}) end
statement: table.sort({l}, function(a, b) return show(a, 1) < show(b, 1) end)
statement: op = {int} % 2 == 0 and up or down
statement: account = {int} % 9 == 0 and Account.new() or account
statement: {d}.self = {d}
statement: string.seen = ({int}) % 11
statement: for i = 1, {small} do {stmt} end
statement: pcall(function() {stmt} error({text}) end)
statement: local co = coroutine.wrap(function(x) {stmt} coroutine.yield(x) end) {s} = show(co({any}), 1)
statement: setmetatable({d}, {int} % 2 == 0 and Account or nil)
statement: for k in pairs({d}) do if show(k, 1) > {text} then {d}[k] = nil end end
rare: error({text})
rare: if {int} % 5 == 0 then error({text}) end
rare: hidden = function() return {int} end
rare: d1[{}] = 1
rare: local n = nil + {int}
rare: co = coroutine.create(show)
""",
    compound="if {int} % 2 == 0 then {stmt} else {stmt} end",
    body="""function f(e, context)
{statements}
  return {n = ({int}) % 1000000 | 0, s = show({any}, 3) .. {s}, x = {float}, t = first + e.n}
end
""",
)
_PYTHON = Grammar.of(
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
    templates=r"""
int: {small}
int: {i}
int: e['n']
int: len({list})
int: ({int} + {int}) % 100003
int: ({int} * {int}) % 1009
int: {int} // ({int} % 7 + 1)
int: len({text})
int: up({small})
int: Account(sums).add({int})
int: random.randint(0, {small})
int: datetime.datetime.now().minute
int: ({int} ^ {int})
int: len(seen)
int: len({dict})
int: int(datetime.datetime.now().timestamp()) % 1000
int: sum([x for x in {list} if isinstance(x, int)]) % 10007
float: {small}.5
float: {f}
float: e['x']
float: ({float} + {float}) % 1e6
float: {float} / ({float} or 1.0)
float: {int} / ({int} or 3)
float: math.sqrt(abs({int}))
float: -({float})
float: {int} * 0.1
text: 't{small}'
text: {s}
text: e['s']
text: ({text} + {text})[-24:]
text: str({int})
text: show({any}, 2)
text: ({text}).upper()
text: ({text}) * ({small} % 3)
text: ','.join([{text}, {text}])
text: datetime.datetime.fromtimestamp({int} * 3600).isoformat()
text: json.dumps([{int}, {text}])
text: WORD.sub('<>', {text})
text: '%5.2f|%r' % ({float}, {int})
text: show(sorted(seen), 1)
text: show(groups, 2)
text: datetime.date.today().strftime('%Y-%m-%d %A')
text: datetime.datetime.now().strftime('%H:%M %s')
text: str(Color({small} % 2 + 1))
any: {int}
any: {text}
any: {float}
any: {list}
any: {dict}
any: {dict}.get({text})
any: {dict}.get({int} % 5)
any: ({list} or [0])[0]
any: {int} > {int}
any: ({int}, {text})
any: next(iter({dict}), None)
list: {l}
list: {l}
list: [{any}, {any}]
list: list({dict}.values())[:2]
list: [show(x, 1) for x in {list}][:3]
list: groups[{int} % 3]
dict: {d}
dict: {d}
dict: {'a': {any}, {int}: {any}}
dict: dict(list({dict}.items())[:2])
dict: sums
statement: {i} = {int}
statement: {f} = {float}
statement: {s} = ({text})[-24:]
statement: {l}.append({any})
statement: {l} = {list}
statement: {d} = {dict}
statement: {d}[({text})[:6]] = {any}
statement: {d}[{int} % 5] = {any}
statement: {d}.pop({text}, None)
statement: {d}[next(iter({d}), 'k')] = {any}
statement: {s} = ''.join([show(k, 1) + show(v, 1) for k, v in {d}.items()])[-24:]
statement: del {l}[:1]
statement: del {l}[6:]
statement: {l}.sort(key=lambda x: show(x, 1))
statement: seen.add({int} % 7)
statement: seen.discard({small})
statement: groups[{int} % 3].append({any})
statement: groups.pop({int} % 3, None)
statement: {d}['self'] = {d}
statement: sums.clear()
statement: {l}.extend([{any}] * ({small} % 3))
statement: {d}.update({dict})
statement: {l}.reverse()
rare: raise ValueError({text})
rare: if {int} % 5 == 0: raise KeyError({text})
rare: d1['hidden'] = show
rare: {s} = str(getattr(Color.RED, 'label', 'none')); Color.RED.label = 'x' + {s}
rare: l1.append(object)
rare: for k in {d}: {d}[show(k, 1)[:5] + 'z'] = {d}.pop(k)
rare: for k in seen: seen.discard(k); seen.add(k + 7)
rare: {i} = None + {int}
rare: {l}.append((x for x in [1]))
""",
    compound="if {int} % 2 == 0:\n    {stmt}\nelse:\n    {stmt}",
    body="""def f(e, context):
    global i1, i2, f1, f2, s1, s2, l1, l2, l3, d1, d2, d3
{statements}
    return {'n': {int} % 1000000, 's': show({any}, 3) + {s}, 'x': {float}, 't': 1_700_000_000 + e['n']}
""",
)
_GRAMMARS = {Language.LUA: _LUA, Language.PYTHON: _PYTHON}


class _Maker:
    def __init__(self, random: Random, grammar: Grammar) -> None:
        self._random, self._grammar = random, grammar

    def filled(self, template: str, depth: int) -> str:
        return _HOLE.sub(lambda hole: self._open_by_magic(hole[1], depth), template)

    def _open_by_magic(self, kind: str, depth: int) -> str:
        if kind in _VARIABLES:
            return self._random.choice(_VARIABLES[kind])
        if kind == "small":
            return str(self._random.randint(0, 9))
        if kind == "stmt":
            return self.statement(depth - 1)
        templates = self._grammar.templates[kind]
        return self.filled(self._random.choice(templates if depth > 0 else templates[:2]), depth - 1)

    def statement(self, depth: int) -> str:
        plain = [each for each in self._grammar.templates["statement"] if depth > 1 or "{stmt}" not in each]
        return self.filled(self._random.choice(plain), depth)

    def event_function(self) -> str:
        statements = []
        for _ in range(self._random.randint(3, 9)):
            is_compound = self._random.random() < 0.2
            statements.append(self.filled(self._grammar.compound, 2) if is_compound else self.statement(DEPTH_MAX))
        if self._random.random() < 0.15:
            statements.insert(
                self._random.randint(0, len(statements)), self.filled(self._random.choice(self._grammar.templates["rare"]), 1)
            )
        lines = "\n".join("    " + line for statement in statements for line in statement.split("\n"))
        return self.filled(self._grammar.body, DEPTH_MAX).replace("{statements}", lines)


def program(seed: int) -> Program:
    random = Random(seed)
    language = random.choice((Language.LUA, Language.PYTHON))
    grammar = _GRAMMARS[language]
    return Program(language, grammar.setup + _Maker(random, grammar).event_function())
