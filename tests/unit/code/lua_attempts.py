# ruff: noqa: E501 - programs stand on one line each
"""Attempts to make two engines differ with Lua code: what each sets up, what it gives for an event, and what becomes of it."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Outcome(Enum):
    EQUAL = "equal"
    """Each event gives the same, whole and restored before each event."""
    BAD = "bad"
    """Events become bad events, the same ones for the same reason."""
    REFUSED = "refused"
    """The project does not load."""


class Attempt(NamedTuple):
    """`setup` runs once; `body` runs for each event `e`, whose field `n` counts from 1, and returns a value that is shown as text."""

    outcome: Outcome
    setup: str
    body: str

    @property
    def code(self) -> str:
        return f"{self.setup}\nfunction f(e)\n  local v = (function(e, ...) {self.body}\nend)(e)\n  return {{s = tostring(v)}}\nend"


def _attempts(outcome: Outcome, pairs: dict[str, tuple[str, str]]) -> dict[str, Attempt]:
    return {name: Attempt(outcome, *pair) for name, pair in pairs.items()}


_METATABLES = _attempts(
    Outcome.EQUAL,
    {
        "__eq over a missing field": (
            "mt = {__eq = function(a, b) return a.kind == b.kind end, __index = {name = 'point'}} p = setmetatable({}, mt)",
            "return p.name",
        ),
        "__eq that is always true": (
            "mt = {__eq = function() return true end} p = setmetatable({x = 1}, mt) q = setmetatable({y = 2}, mt)",
            "p.x = p.x + 1 return p.x .. tostring(q.y) .. tostring(p == q)",
        ),
        "__eq with names of builtins as fields": (
            "mt = {__eq = function() return true end} p = setmetatable({print = 1, pairs = 2, n = 0}, mt)",
            "p.n = p.n + 1 return p.n .. p.print .. p.pairs",
        ),
        "__eq and next": (
            "mt = {__eq = function() return true end}",
            "local a, b = setmetatable({x = 1, y = 2}, mt), setmetatable({x = 1, z = 3}, mt) local k = next(a) return next(b, k)",
        ),
        "__eq on what replaces a global of the machine": (
            "mt = {__eq = function() return true end} string2 = string",
            "math = setmetatable({pi = 3 + e.n}, mt) return math.pi",
        ),
        "__eq on what replaces _G": ("", "_G = setmetatable({n = e.n}, {__eq = nil}) return _G.n"),
        "__eq counts its calls": (
            "calls = 0 mt = {__eq = function() calls = calls + 1 return true end} p, q = setmetatable({}, mt), setmetatable({}, mt)",
            "return calls",
        ),
        "__index counts its calls": (
            "calls = 0 p = setmetatable({}, {__index = function() calls = calls + 1 return nil end})",
            "local x = p.x return calls",
        ),
        "__newindex counts its calls": (
            "calls = 0 p = setmetatable({}, {__newindex = function(t, k, v) calls = calls + 1 rawset(t, k, v) end})",
            "p[e.n] = e.n return calls .. rawlen(p)",
        ),
        "__len counts its calls": (
            "calls = 0 p = setmetatable({1, 2}, {__len = function() calls = calls + 1 return 9 end})",
            "return #p + calls",
        ),
        "__pairs counts its calls": (
            "calls = 0 p = setmetatable({1, 2}, {__pairs = function(t) calls = calls + 1 return next, t end})",
            "local n = 0 for _ in pairs(p) do n = n + 1 end return n .. calls",
        ),
        "__tostring and __name": (
            "calls = 0 p = setmetatable({}, {__name = 'Point', __tostring = function() calls = calls + 1 return 'p' .. calls end})",
            "return tostring(p) .. string.format('%s', p)",
        ),
        "__name alone": ("p = setmetatable({}, {__name = 'Point'})", "return tostring(p) .. string.format('%s|%10s', p, p)"),
        "__concat counts its calls": (
            "calls = 0 p = setmetatable({}, {__concat = function(a, b) calls = calls + 1 return type(a) .. type(b) end})",
            "return (p .. 1) .. ('x' .. p) .. (1 .. 2 .. p) .. (p .. p) .. calls",
        ),
        "__lt and __le in a sort": (
            "mt = {__lt = function(a, b) return a.v < b.v end, __le = function(a, b) return a.v <= b.v end} t = {}",
            "t[#t + 1] = setmetatable({v = (e.n * 7) % 5}, mt) table.sort(t) return t[1].v .. tostring(t[1] <= t[#t])",
        ),
        "__call": ("p = setmetatable({n = 0}, {__call = function(self, d) self.n = self.n + d return self.n end})", "return p(2)"),
        "__metatable hides it": ("p = setmetatable({}, {__metatable = 'no', __index = {a = 1}})", "return getmetatable(p) .. p.a"),
        "a metatable that is its own": (
            "p = {} p.__index = p setmetatable(p, p) p.n = 0 p.__eq = rawequal",
            "p.n = p.n + 1 return rawget(p, 'n')",
        ),
        "a metatable with a metatable": (
            "inner = {__index = function(t, k) return k == '__index' and {deep = 7} or nil end} p = setmetatable({}, setmetatable({}, inner))",
            "return p.deep",
        ),
        "a metatable that an event makes": (
            "mt = {__index = {a = 1}} p = {}",
            "setmetatable(p, e.n % 2 == 0 and mt or nil) return p.a",
        ),
        "a metatable that an event changes": (
            "mt = {__index = {a = 1}} p = setmetatable({}, mt)",
            "mt.__index = {a = e.n} mt.__add = nil return p.a",
        ),
        "a metatable of a library": ("", "if e.n == 2 then setmetatable(math, {__index = {mine = 'kept'}}) end return math.mine"),
        "a metatable of a library changes": ("m = {n = 0} setmetatable(table, {__index = m})", "m.n = m.n + 1 return table.n"),
        "__close": (
            "closed = 0 mt = {__close = function(_, why) closed = closed + 1 end}",
            "do local t <close> = setmetatable({}, mt) end return closed",
        ),
        "__close after an error": (
            "closed = 0 mt = {__close = function(_, why) closed = closed .. tostring(why):sub(-3) end}",
            "pcall(function() local t <close> = setmetatable({}, mt) error('why') end) return closed",
        ),
        "__unm, __bnot, __shl and others": (
            "mt = {} for _, k in ipairs({'__unm', '__bnot', '__shl', '__idiv', '__mod', '__pow', '__band'}) do mt[k] = nil end"
            " mt.__unm = function() return 'unm' end mt.__bnot = function() return 'bnot' end mt.__shl = function(a, b) return type(b) end",
            "local p = setmetatable({}, mt) return -p .. ~p .. (p << 1)",
        ),
        "__gc of another name": ("mt = {__gcx = 1, mode = 'k'}", "return mt.__gcx"),
    },
)
_TABLES = _attempts(
    Outcome.EQUAL,
    {
        "cyclic tables": ("t = {} t.t = t t.u = {t = t}", "t.n = (t.n or 0) + 1 return t.u.t.t.n .. tostring(t.t == t)"),
        "one table under two names": ("a = {n = 0} b = {a, a}", "b[1].n = b[1].n + 1 return a.n .. tostring(b[2] == a)"),
        "equal tables under two names": ("a, b = {1}, {1}", "return a == b"),
        "order of pairs": (
            "t = {}",
            "t['k' .. e.n * 7 % 5] = e.n t[-e.n] = 1 t[e.n / 2] = 2 local s = '' for k, v in pairs(t) do s = s .. k .. v end return s",
        ),
        "order of pairs after deletes": (
            "t = {} for i = 1, 20 do t[i] = i t['x' .. i] = i end",
            "t[e.n * 3] = nil t['x' .. e.n] = nil local s = '' for k in pairs(t) do s = s .. k end return s",
        ),
        "order of pairs after keys come back": (
            "t = {a = 1, b = 2, c = 3}",
            "t.b = nil t.b = e.n local s = '' for k, v in pairs(t) do s = s .. k .. v end return s",
        ),
        "next with false keys": (
            "t = {[false] = 1, [true] = 2, x = 3}",
            "local s = '' for k in next, t do s = s .. tostring(k) end return s",
        ),
        "next goes on in a later event": ("t = {a = 1, b = 2, c = 3}", "key = next(t, key) return key"),
        "next of a key that goes": (
            "t = {a = 1, b = 2, c = 3}",
            "local k = next(t) local s = '' while k do s = s .. k t[k] = nil k = next(t, k) end t = {a = 1, b = e.n} return s",
        ),
        "integer and float keys": (
            "t = {}",
            "t[1] = 'i' t[1.0] = 'f' t[2^53] = e.n t[1.5] = e.n return t[1] .. t[2^53] .. math.type(next(t))",
        ),
        "-0.0 as a key and a value": (
            "t = {}",
            "t[-0.0] = -0.0 zero = -0.0 return 1 / t[0] .. ' ' .. 1 / zero .. ' ' .. 1 / (0.0 * e.n)",
        ),
        "-0.0 is kept": ("z, i = -0.0, 0", "local s = string.format('%.1f %d', z, i) return s .. math.type(z)"),
        "floats that are whole": ("x, y = 1.0, 1", "return math.type(x) .. math.type(y) .. x .. y"),
        "floats to the last bit": ("x = 0.1", "x = x * 3 + 0.1 / e.n return string.format('%a', x)"),
        "infinities": ("x, y = 1/0, -1/0", "return x .. y .. math.huge // 1 .. string.format('%f %q', x, y)"),
        "NaN in a variable": (
            "x = 0/0",
            "x = -x return tostring(x) .. tostring(x ~= x) .. string.format('%f %g %.1f %s', x, x, x, x)",
        ),
        "NaN in texts": (
            "x = 0/0",
            "return x .. '' .. table.concat({x, -x}, ',') .. (-(x)) .. ('x'):rep(2, x) .. string.upper(x) .. string.len(-x)",
        ),
        "NaN as bytes": (
            "x = 0/0",
            "return string.pack('<d', x):byte(-1) .. string.pack('<d', -x):byte(-1) .. string.pack('z', -x)",
        ),
        "NaN in patterns": ("x = -(0/0)", "return string.find('-nan', x) .. string.gsub('nan', x, -x) .. string.format(x)"),
        "gaps": ("t = {1, nil, 3, nil, nil, 6}", "t[#t + 1] = e.n t[e.n * 5] = 1 return #t .. select('#', table.unpack(t))"),
        "rawlen and #": ("t = {}", "t[e.n * 2] = 1 t[e.n] = 1 return #t .. rawlen(t)"),
        "long and deep": ("t = {}", "local u = t for i = 1, 150 do u.x = u.x or {} u = u.x end u.n = (u.n or 0) + 1 return u.n"),
        "bytes in texts": (
            "t = {}",
            "local k = '\\0\\xff' .. string.char(e.n) t[k] = k local s = '' for a in pairs(t) do s = s .. a:byte(-1) end return s",
        ),
        "a thousand keys in other order": (
            "t = {}",
            "for i = 1, 300 do local k = (i * 7919 * e.n) % 1009 t[k % 2 == 0 and k or 'k' .. k] = i end local h = 0 for k, v in pairs(t) do h = (h * 31 + v) % 1000003 end return h",
        ),
        "integers that overflow": (
            "x = math.maxinteger - 2",
            "x = x + 1 return x .. math.type(x) .. x * 2 .. math.mininteger // -1",
        ),
        "integers and floats compared": (
            "x = 2^53",
            "x = x + 1 return tostring(x == 2^53) .. tostring(math.maxinteger < 2^63) .. tostring(math.maxinteger + 0.0 == 2^63)",
        ),
        "string coercions": (
            "s = '10'",
            "s = s + e.n return s .. '3' * '4' .. '0x10' + 0 .. ' 5 ' + 1 .. 10 // '3' .. math.type('3' + 0)",
        ),
        "numbers as texts": (
            "x = 1e15",
            "x = x * 10 return x .. ' ' .. 1e100 .. ' ' .. 123456789012 .. ' ' .. 0.1 .. ' ' .. 1e14 .. ' ' .. -1e-7",
        ),
        "shifts": ("x = 1", "x = x << 9 return x .. ' ' .. (x >> 65) .. ' ' .. (-1 >> 1) .. ' ' .. (1 << 63)"),
        "table.insert, remove, sort, move": (
            "t = {}",
            "table.insert(t, 1, e.n) table.insert(t, e.n * 7 % 5) table.sort(t) if #t > 5 then table.remove(t, 2) end return table.concat(table.move(t, 1, #t, 1, {}), ',')",
        ),
        "a table as an upvalue and a global": ("local t = {n = 0} u = t", "t.n = t.n + 1 return u.n .. tostring(u == t)"),
        "keys of every kind but tables": (
            "t = {}",
            "t[e.n], t[e.n + .5], t[tostring(e.n)], t[e.n > 3] = 1, 2, 3, 4 local s = '' for k in pairs(t) do s = s .. tostring(k) .. ' ' end return s",
        ),
    },
)
_FUNCTIONS = _attempts(
    Outcome.EQUAL,
    {
        "an upvalue that two functions share": (
            "local n = 0 function up() n = n + 1 end function get() return n end",
            "up() return get()",
        ),
        "closures of a factory, each with its own": (
            "local function make() local n = 0 return function(d) n = n + d return n end end a, b = make(), make()",
            "return a(1) .. ' ' .. b(10) .. tostring(a == b)",
        ),
        "functions in tables": (
            "ops = {function(x) return x + 1 end, function(x) return x * 2 end} at = 1",
            "at = at % 2 + 1 op = ops[at] return op(e.n)",
        ),
        "a function under another name": (
            "local function one() return 1 end local function two() return 2 end chosen = one",
            "chosen = chosen == one and two or one return chosen()",
        ),
        "functions of the machine as values": (
            "op = string.upper",
            "op = op == string.upper and string.lower or string.upper return op('aB')",
        ),
        "an upvalue of an upvalue": (
            "local a = 1 local function f1() a = a + 1 return a end local function f2() return f1() end g = function() return f2() end",
            "return g()",
        ),
        "a recursive local": ("local function fib(n) return n < 2 and n or fib(n - 1) + fib(n - 2) end", "return fib(e.n + 5)"),
        "_ENV as a local": (
            "do local _ENV = {_G = _G} n = 0 function bump() n = n + 1 return n end _G.bump = bump end",
            "return bump()",
        ),
        "_ENV that is assigned": (
            "",
            "local t, n = tostring, e.n _ENV = setmetatable({n = (rawget(_ENV, 'n') or 0) + 1}, {__index = _G}) return t(_ENV.n)",
        ),
        "the function of the window changes": (
            "function other(e) return {s = 'other' .. e.n} end",
            "if e.n == 2 then f = other end return 'first'",
        ),
        "the function of the window goes": ("", "if e.n == 4 then other = f end return other == f"),
        "an iterator made when loading": (
            "walk, t = pairs({a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8})",
            "return (walk(t))",
        ),
        "goto and integer loops": (
            "n = 0",
            "for i = math.maxinteger - 1, math.maxinteger do n = n + 1 end ::top:: if n % 5 ~= 0 then n = n + 1 goto top end return n",
        ),
        "varargs": (
            "args = table.pack(1, nil, 3)",
            "args = table.pack(table.unpack(args, 1, args.n)) return args.n .. select('#', ...)",
        ),
        "coroutines within an event": (
            "sum = 0",
            "local co = coroutine.wrap(function() for i = 1, e.n do coroutine.yield(i) end end) for i in co do sum = sum + i end return sum",
        ),
        "the coroutine that runs": ("", "return tostring(coroutine.running()) .. tostring(coroutine.isyieldable())"),
        "errors with values": (
            "",
            "local ok, what = pcall(error, {code = e.n}) return type(what) .. what.code .. select(2, pcall(error, 'x' .. e.n, 0))",
        ),
        "messages of errors": (
            "t = {}",
            "local _, a = pcall(function() return t.x.y end) local _, b = pcall(function() return #e.n end) local _, c = pcall(function() return t < {} end) return a .. b .. c",
        ),
        "messages with a name of a kind": (
            "t = setmetatable({}, {__name = 'My'})",
            "return select(2, pcall(string.rep, t, 2)) .. select(2, pcall(function() return t < t end))",
        ),
        "xpcall with a handler": ("seen = 0", "xpcall(function() error('x') end, function(m) seen = seen + #m end) return seen"),
    },
)
_LIBRARIES = _attempts(
    Outcome.EQUAL,
    {
        "a function added to a library when loading": ("function string.twice(s) return s .. s end", "return ('x'):twice()"),
        "a value put into a library": ("", "string.count = (string.count or 0) + 1 return string.count .. ('x').count"),
        "a table put into a library": ("math.seen = {}", "math.seen[e.n] = true return #math.seen"),
        "a function of a library that goes": (
            "",
            "if e.n == 2 then string.rep = nil end return tostring(string.rep) .. tostring(math.sin)",
        ),
        "a function of a library in place of another": (
            "",
            "if e.n % 2 == 0 then string.upper = string.lower end return ('aB'):upper()",
        ),
        "a library that goes": ("", "if e.n == 3 then table = nil end return tostring(table) .. tostring(os)"),
        "a library as a value": ("kept = {s = string}", "return kept.s.upper('x') .. tostring(kept.s == string)"),
        "string.format replaced when loading": (
            "string.format = function() return 'mine' end",
            "t = {} return string.format('%d', 1)",
        ),
        "pairs replaced when loading": (
            "pairs = function() return function() end end next = function() end",
            "x = {a = e.n} local n = 0 for _ in pairs(x) do n = n + 1 end return n .. x.a",
        ),
        "all builtins replaced": (
            "for _, k in ipairs({'type', 'rawget', 'rawset', 'rawequal', 'next', 'pairs', 'error', 'setmetatable', 'getmetatable', 'select'})"
            " do _G[k] = function() return nil end end table.insert = nil table.concat = function() return 'no' end string.pack = nil",
            "n = (n or 0) + 1 t = {n, {n}} return n .. t[2][1]",
        ),
        "tostring replaced": ("was = tostring tostring = function(x) return 'mine' .. was(x) end", "return e.n"),
        "rawset into a library that cannot be changed": ("", "rawset(io, 'n', (rawget(io, 'n') or 0) + 1) return rawget(io, 'n')"),
        "addresses": (
            "t, g = {}, function() end",
            "return tostring(t) .. tostring(g) .. tostring(print) .. tostring(string) .. string.format('%s %s', t, g) .. esp_toString({})",
        ),
        "the time of the event": (
            "first = os.time()",
            "return first .. os.time() .. os.date('%c') .. os.date('*t').yday .. os.clock() .. esp_getSystemMicro()",
        ),
        "times with a zone": (
            "",
            "return os.date('%Z %z') .. os.time({year = 2024, month = 7, day = 1}) .. os.date('%H', 0) .. os.date('!%H', 0)",
        ),
        "times near the change of the clock": (
            "",
            "return os.time({year = 2024, month = 3, day = 10, hour = 2, min = 30}) .. os.date('%x %X', 1710055800)",
        ),
        "chance": ("first = math.random(1000)", "return first .. ' ' .. math.random(1000000) .. ' ' .. math.random()"),
        "chance with a seed": (
            "",
            "math.randomseed(e.n) local a = math.random(9999) math.randomseed(e.n) return a - math.random(9999)",
        ),
        "the environment": (
            "",
            "return tostring(os.getenv('HOME')) .. tostring(os.getenv('TZ')) .. tostring(os.getenv('PYTHONHASHSEED'))",
        ),
        "letters of another locale": (
            "",
            "return ('\\xe9\\xc9'):upper():byte() .. tostring(('\\xe9'):find('%a')) .. tostring('a' < '\\xe9') .. tostring('B' < 'a') .. tostring(1.5)",
        ),
        "print": ("", "print(e) esp_logMessage({}) return 'printed'"),
        "JSON in order": ("t = {}", "t['k' .. e.n * 7 % 5] = {e.n, x = e.n / 4} return esp_toJson(t)"),
        "JSON of the event": (
            "",
            "return tostring(esp_parseJsonFrom('s')) .. esp_toJson(esp_parseJson('{\"b\":[1,2.50,null],\"a\":1e3}'))",
        ),
        "the global data outlives no event": (
            "function seen() return tostring(data and data.n) .. tostring(context) end",
            "local was = kept kept = data.n return tostring(was) .. seen():sub(1, 1)",
        ),
        "the event is kept": ("", "local was = kept kept = e return tostring(was and was.n)"),
        "the context is kept": ("", "kept = context return kept.input .. kept.opcode"),
        "string.gsub by functions and tables": (
            "n = 0",
            "return (('a b c'):gsub('%a', function(x) n = n + 1 return x .. n end)) .. (('abc'):gsub('.', {a = 1, b = false})) .. ('x y'):gsub('(%a) (%a)', '%2%1%0')",
        ),
        "texts packed": (
            "",
            "return #string.pack('<i4s2z', e.n, 'ab', 'c') .. string.unpack('<i4', string.pack('<i4', -e.n)) .. string.packsize('i4i8')",
        ),
        "utf8": (
            "t = {}",
            "t[#t + 1] = utf8.char(0x20AC + e.n) local s = table.concat(t) return utf8.len(s) .. utf8.codepoint(s, -3) .. (s:gsub(utf8.charpattern, 'x'))",
        ),
        "what memory is left": ("", "local ok, why = pcall(collectgarbage, 'count') return tostring(ok) .. why:sub(-12)"),
        "a table that becomes weak and is one no more": (
            "k = '__mo' .. 'de' mt = {} t = setmetatable({}, mt)",
            "mt[k] = 'v' t[1] = {} for i = 1, 20000 do local x = {i} end local found = t[1] ~= nil mt[k] = nil t[1] = nil return found",
        ),
    },
)
_BAD = _attempts(
    Outcome.BAD,
    {
        "a closure made by an event": ("", "kept = function() return e.n end return 1"),
        "a coroutine kept": ("", "kept = coroutine.create(function() end) return 1"),
        "a coroutine made when loading": (
            "co = coroutine.wrap(function() for i = 1, 99 do coroutine.yield(i) end end)",
            "return co()",
        ),
        "a coroutine hidden in a library": ("", "math.co = coroutine.create(f) return 1"),
        "an iterator of the library kept": ("", "kept = ('a b'):gmatch('%a') return 1"),
        "a table as a key": ("t = {}", "t[{}] = 1 return 1"),
        "a function as a key": ("t = {}", "t[f] = 1 return next(t)"),
        "a table as a key walked": ("", "local s = 0 for k in pairs({[{}] = 1, [{}] = 2}) do s = s + 1 end return s"),
        "a function put into a library": ("", "string.mine = function() end return 1"),
        "a closure in a metatable": ("t = {}", "setmetatable(t, {__index = function() end}) return 1"),
        "a closure in a metatable of a library": ("", "setmetatable(utf8, {__index = function() return 1 end}) return utf8.x"),
        "a closure as an upvalue": ("local inner function get() return inner end", "inner = function() return get end return 1"),
        "a weak table by a name that is made": ("", "local mt = {} mt['__mo' .. 'de'] = 'k' kept = setmetatable({}, mt) return 1"),
        "a table that becomes weak by a name that is made": (
            "mt = {} kept = setmetatable({}, mt)",
            "mt['__mo' .. 'de'] = 'v' kept[1] = {} return 1",
        ),
        "a weak table by a key with an escape": ("mt = {} kept = setmetatable({}, mt)", "mt['__m\\x6fde'] = 'k' return 1"),
        "a weak table by a key in brackets": ("mt = {} kept = setmetatable({}, mt)", "mt[ [[__mode]] ] = 'k' return 1"),
        "a finaliser by a key in brackets": ("", "setmetatable({}, {[ [==[__gc]==] ] = f})"),
        "a finaliser by a name that is made": ("", "local mt = {} mt['__g' .. 'c'] = f setmetatable({}, mt) return 1"),
        "weak keys by rawset": ("mt = {} kept = setmetatable({}, mt)", "rawset(mt, '__mo' .. 'de', 'k') return 1"),
        "collectgarbage": ("", "return collectgarbage('count')"),
        "string.dump": ("", "return string.dump(f)"),
        "%p": ("", "return string.format('%p', {})"),
        "%p with a width": ("", "return string.format('%-20p', print)"),
        "%p made of parts": ("p = '%' .. 'p'", "return string.format('%%' .. p, f)"),
        "load": ("", "return load('return 1')()"),
        "dofile": ("", "return dofile('/etc/hostname')"),
        "io": ("", "return io.open('/etc/hostname')"),
        "os.execute": ("", "return os.execute('true')"),
        "os.tmpname": ("", "return os.tmpname()"),
        "os.setlocale": ("", "return os.setlocale('')"),
        "debug": ("", "return debug.getinfo(1)"),
        "debug.sethook": ("", "debug.sethook()"),
        "package": ("", "return package.loaded.os"),
        "require of a library": ("", "return require('string')"),
        "python": ("", "return python.eval('1')"),
        "setmetatable of texts": ("", "getmetatable('').__index = {}"),
        "setmetatable of _G": ("", "setmetatable(_G, {__index = function() return 1 end})"),
        "an error that says that it is the limit": ("mt = {__eq = function() return true end}", "error(setmetatable({}, mt))"),
        "an error that says that memory is out": ("", "error('not enough memory', 0)"),
        "an error that is a table": ("", "error({e.n})"),
        "an error that is a number": ("", "error(0/0)"),
        "no end": ("", "while true do end"),
        "no end in pcall": ("", "while true do pcall(function() while true do end end) end"),
        "no end in a coroutine": ("", "coroutine.wrap(function() while true do end end)()"),
        "no end in __close": (
            "mt = {__close = function() while true do end end}",
            "local t <close> = setmetatable({}, mt) error('x')",
        ),
        "no end in a comparison": (
            "mt = {__lt = function() while true do end end}",
            "return setmetatable({}, mt) < setmetatable({}, mt)",
        ),
        "no end in a handler": ("", "xpcall(error, function() while true do end end)"),
        "the limit and an error in __close": (
            "mt = {__close = function() error('other') end}",
            "local t <close> = setmetatable({}, mt) while true do end",
        ),
        "texts that double": ("n = 0", "n = n + 1 if e.n == 2 then big = 'x' while true do big = big .. big end end return n"),
        "texts that double in threes": ("", "local s = 'x' while true do s = s .. s .. s end"),
        "texts that double caught": ("", "big = 'x' while pcall(function() big = big .. big end) do end return #big"),
        "texts that double by concat": ("", "local s = 'x' while true do s = table.concat({s, s, s, s}) end"),
        "texts that double by rep": ("", "local s = 'x' while true do s = s:rep(8) end"),
        "texts that double by format": ("", "local s = 'x' while true do s = string.format('%s%s%s', s, s, s) end"),
        "texts that double by gsub": ("", "local s = 'xx' while true do s = s:gsub('x', s) end"),
        "texts that double by functions of gsub": ("", "local s = 'xx' while true do s = s:gsub('x', function() return s end) end"),
        "texts that double by tables of gsub": ("", "local s = 'xx' while true do s = s:gsub('x', {x = s}) end"),
        "texts that double by pack": ("", "local s = 'x' while true do s = string.pack('s8s8', s, s) end"),
        "texts of blanks by pack": ("", "return #string.pack('c2000000000', '')"),
        "texts that double by JSON": ("", "local s = 'x' while true do s = esp_toJson({s, s}) end"),
        "copies of a long text": ("s = ('x'):rep(900000)", "while true do local x = s:sub(1, -2) end"),
        "many copies of a long text": ("s = ('x'):rep(900000)", "local t = {} for i = 1, 1e9 do t[i] = s .. i end"),
        "many values of a long text": ("s = ('x'):rep(900000)", "while true do local x = {s:byte(1, -1)} end"),
        "loops in the library": ("", "return table.concat({}, '', 1, 1e15)"),
        "moves in the library": ("", "table.move({}, 1, 1e15, 2)"),
        "moves with a text as number": ("", "table.move({}, 1, '1000000000000000', 2)"),
        "values in the library": ("", "return table.unpack({}, 1, 1e15)"),
        "rep of nothing": ("", "return (''):rep(1e15)"),
        "tables without end": ("", "t = {} for i = 1, 1e15 do t[i] = {i} end"),
        "recursion without end": ("", "local function r(n) return 1 + r(n) end return r(1)"),
        "recursion by metatables": (
            "t = setmetatable({}, {}) getmetatable(t).__index = function(_, k) return t[k + 1] end",
            "return t[1]",
        ),
        "patterns that go back": ("", "return ('a'):rep(5000):find(('.-'):rep(12) .. 'b')"),
        "state that grows": ("list = {}", "for i = 1, 800 do list[#list + 1] = ('x'):rep(100) .. #list end return #list"),
        "state that grows in a library": (
            "string.list = {}",
            "for i = 1, 800 do string.list[#string.list + 1] = ('x'):rep(100) .. i end return 1",
        ),
        "state that grows while events fail": (
            "list = {}",
            "for i = 1, 800 do list[#list + 1] = ('x'):rep(100) .. #list end error('x')",
        ),
        "values nested in each other many times": (
            "",
            "local t = {1} for i = 1, 60 do t = {t, t} end return setmetatable({}, {__tostring = function() return esp_toJson(t) end})",
        ),
        "two values in a row": ("", "return nil .. 'x'"),
        "an index of nothing": ("", "return e.n.x.y"),
        "a whole number that is none": ("", "return 1.5 | 1"),
        "division by zero": ("", "return e.n // 0"),
    },
)
_REFUSED = _attempts(
    Outcome.REFUSED,
    {
        "a weak table": ("t = setmetatable({}, {__mode = 'k'})", "return 1"),
        "a finaliser": ("t = setmetatable({}, {__gc = function() end})", "return 1"),
        "a weak table by an event": ("mt = {}", "mt.__mode = 'k' return 1"),
        "a weak table by a key": ("mt = {}", "mt['__mode'] = 'k' return 1"),
        "no Lua": ("x = = 1", "return 1"),
        "Python": ("", "import os"),
        "code that is compiled": ("\x1bLua", "return 1"),
        "code that does not end when it is loaded": ("while true do end", "return 1"),
        "code that fails when it is loaded": ("error('at once')", "return 1"),
        "no memory when it is loaded": ("local s = 'x' while true do s = s .. s end", "return 1"),
    },
)
ATTEMPTS = _METATABLES | _TABLES | _FUNCTIONS | _LIBRARIES | _BAD | _REFUSED
