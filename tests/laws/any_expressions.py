"""Expressions and code for windows of random graphs, over the five fields that all of these have."""

from __future__ import annotations

from types import MappingProxyType

NUMBERS = (
    *("x", "x", "x + 1", "6 div x", "coalesce(x, 7)", "x * 3037000500", "length(s)", "cast(d as bigint)"),
    *("if(ESP_OPCODE = 'I', x, -1)", "if(d > 0, x, null)"),
)
DOUBLES = ("d", "d", "d / x", "d * 1e300", "cast(x as double)", "0 - d", "sqrt(d)", "cast(s as double)")
TEXTS = ("s", "s", "concat(s, '!')", "concat(ESP_OPCODE, s)", "cast(d as string)", "substring(s, 1, 1)")
TIMES = ("at", "at", "cast(null as timestamp)")
CONDITIONS = (
    *("true", "x > 1", "x > 1", "6 div x > 2", "s = 'a' or x is null", "d > 0", "d = d", "not isnan(d)", "s < 'b'"),
    *("ESP_OPCODE = 'I'", "ESP_OPCODE <> 'D'", "ESP_FLAGS <> 'R'", "x > 0 and ESP_OPCODE = 'I'"),
)
OVER_NUMBERS = (
    *("ESP_aSum(x)", "ESP_aCount()", "ESP_aCountNonNull(d)", "ESP_aCountNull(s)", "ESP_aCountDistinct(s)", "ESP_aCountDistinct(d)"),
    *("ESP_aMin(x)", "ESP_aMax(x)", "ESP_aMode(x)", "ESP_aSum(x) + ESP_aCount()", "6 div ESP_aSum(x)", "ESP_aSum(x * 3037000500)"),
)
OVER_DOUBLES = (
    *("ESP_aSum(d)", "ESP_aAve(d)", "ESP_aMin(d)", "ESP_aMax(d)", "ESP_aStd(d)", "ESP_aVariance(d)", "ESP_aCSS(d)", "ESP_aUSS(d)"),
    *("ESP_aCV(d)", "ESP_aWAve(d, x)", "median(d)", "percentile(d, 0.9)", "ESP_aMode(d)", "ESP_aAve(x)", "ESP_aWAve(x, d)"),
    *("ESP_aSum(d) / ESP_aCount()", "ESP_aMax(d * 2)", "ESP_aStd(x)"),
)
OVER_TEXTS = ("ESP_aMax(s)", "ESP_aMin(s)", "ESP_aMode(s)", "ESP_aMax(concat(s, cast(x as string)))")
OVER_TIMES = ("ESP_aMax(at)", "ESP_aMin(at)")
OF_ORDER = MappingProxyType(
    {
        "x": (
            *("ESP_aFirst(x)", "ESP_aLast(x)", "ESP_aLag(x, 1)", "nth(x, 2)", "ESP_aLastNonDelete(x)", "ESP_aCountOpcodes(1)"),
            *("ESP_aSumTimed(x, 2)", "ESP_aCountTimed(2)", "ESP_aMinTimed(x, 2)", "ESP_aMaxTimed(x, 1)", "ESP_aLag(x, 20)"),
        ),
        "d": (
            "ESP_aFirst(d)",
            "ESP_aLast(d)",
            "ESP_aSumTimed(d, 2)",
            "ESP_aAveTimed(d, 1)",
            "ESP_aMinTimed(d, 2)",
            "ESP_aLag(d, 2)",
        ),
        "s": (
            "ESP_aCat(s, ';')",
            "ESP_aCat(x, ';')",
            "ESP_aLast(s)",
            "ESP_aFirst(s)",
            "ESP_aGUID()",
            "ESP_aLag(s, 1)",
            "ESP_aMinTimed(s, 2)",
            "ESP_aMaxTimed(s, 1)",
            "nth(s, 2)",
        ),
        "at": ("ESP_aLast(at)", "ESP_aFirst(at)"),
    }
)
"""Functions of more than the rows of a group: of their order, of time, or of events."""
OVER_ROWS = MappingProxyType({"x": OVER_NUMBERS, "id": OVER_NUMBERS, "d": OVER_DOUBLES, "s": OVER_TEXTS, "at": OVER_TIMES})
BY_FIELD = MappingProxyType({"x": NUMBERS, "id": NUMBERS, "d": DOUBLES, "s": TEXTS, "at": TIMES})
ANY_INDEX = ("hash", "hash", "hash", "empty")
CONDITIONS_OF_JOINS = ({"x": "id"}, {"id": "x"}, {"x": "x"}, {"s": "s"}, {"d": "d"}, {"x": "x", "s": "s"})
LOGICS = (
    *("fby{2 seconds}(a, b)", "fby(a, notoccur(b))", "fby{1 second}(a, notoccur(b))", "and{3 seconds}(a, b)", "or(a, fby(b, b))"),
    *("seen:2(a)", "fby{2 seconds}(a, seen:2(b))", "and(is:2(a), notoccur(b))", "fby(not(a), b)", "fby(a, a, b)"),
)

LUA_PATTERN = """
local asked = 0
function is_a(event)
  asked = asked + 1
  return event.x ~= nil, {x = event.x, s = event.s}
end
function is_b(event, context)
  asked = asked + 1
  if event.x == nil or context.data.x == nil then return false end
  return event.x + context.data.x > 1, {d = event.d, at = event.at}
end
function output(context)
  local made = context.data
  made.x = asked
  return made
end
"""
PYTHON_PATTERN = {
    "language": "python",
    "output": "made",
    "code": """
asked = {}
def is_a(event):
    asked[event["s"]] = asked.get(event["s"], 0) + 1
    return event["s"] is not None, {"s": event["s"], "x": event["x"]}
def is_b(event, context):
    return event["x"] > context["data"].get("x", 0)
def made(context):
    found = context["events"].get("b", {})
    last = found[-1] if isinstance(found, list) else found
    return {**context["data"], "d": len(asked), "at": last.get("at")}
""",
}
"""Code of patterns with the events a and b; it fails on null and on events that a match does not have."""
LUA_CUSTOM = """
local limit, waiting, beats = 0, {}, 0
function init(settings) limit = tonumber(settings.limit) end
function create(data, context)
  if data.number == nil then error("no number") end
  if #waiting < limit then waiting[#waiting + 1] = {number = data.number + beats, text = data.name} end
  return {number = data.number}
end
function heartbeat()
  beats = beats + 1
  local made = waiting
  waiting = {}
  for i, each in ipairs(made) do each.id = beats * 100 + i end
  return made
end
"""
LUA_CREATE = """
local best
function create(data, context)
  if context.opcode == "delete" then return {_opcode = "safedelete"} end
  n = (n or 0) + 1
  names = names or {}
  if data.s then names[data.s] = (names[data.s] or 0) + n end
  if data.x == 3 then error("three") end
  if not data.x then return nil end
  best = math.max(best or data.x, data.x)
  return {{x = best, _opcode = "upsert"}, {id = data.id, x = n, s = data.s or context.input, _opcode = "upsert"}}
end
"""
LUA_SHARED = """
local last
function began() esp_addPropertyListener({name = "last", change = "changed", init = true}) end
function changed(property) last = property.value end
function create(data, context)
  if context.opcode == "delete" then return {_opcode = "safedelete"} end
  local count = (esp_getProperty("count") or 0) + 1
  esp_setProperty("count", count)
  local before = last
  if data.x then esp_setProperty({name = "last", value = {data.s, data.x}}) end
  if data.x == 4 then error("four") end
  return {x = count, s = before and before[1], _opcode = "upsert"}
end
"""
PYTHON_CREATE = """
seen, counts = [], {}

def create(data, context):
    if context["opcode"] == "delete":
        return {"_opcode": "safedelete"}
    seen.append(data["x"])
    counts[data["s"]] = counts.get(data["s"], 0) + 1
    if data["x"] == 3:
        raise ValueError("three")
    if data["x"] is None:
        return None
    return {"x": len(seen), "d": float(counts[data["s"]]), "s": data["s"] or context["input"], "_opcode": "upsert"}
"""
PYTHON_COLUMNS = """
import pyarrow.compute as pc

def scale(data):
    return {"d": pc.multiply(data["d"], 2.0), "x": pc.divide(6, pc.subtract(data["x"], 2))}
"""
LUA_FILTER = """
local last
function filter(event)
  local rose = last ~= nil and event.x ~= nil and event.x > last
  last = event.x or last
  return rose
end
"""
PYTHON_FILTER = """
kept = {}

def keep(data):
    kept[data["s"]] = kept.get(data["s"], 0) + 1
    return kept[data["s"]] % 2 == 1
"""
