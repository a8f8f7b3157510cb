"""Writes docs/expressions.md from the table of functions: `python -m tests.expressions.reference_page`. A test compares."""

from __future__ import annotations

from pathlib import Path

from hotspare.expressions.functions import CAST_NAMES, NAMES, REFUSED, TABLE
from hotspare.model.project import Dialect

PAGE = Path(__file__).parents[2] / "docs" / "expressions.md"

_HEAD = """# Expressions

The table of functions below is written from `src/hotspare/expressions/` by `make docs`; do not edit.

Compute, filter and functional windows take expressions over the fields of one event. YAML projects write them in **Spark SQL**;
projects in SAS ESP XML write **SAS expressions**, and in functional windows the **function language**. All become the same typed
tree, evaluated over whole batches. `{esp: ...}` and `{functions: ...}` are the other languages in YAML, `hs:dialect` in ESP XML.

```
case when price > 100 then 'high' when price is null then null else 'low' end      Spark SQL
if price > 100 then return "high" else if isnull(price) then return null return "low"   SAS
if(gt($price, 100), 'high', if(isNull($price), null, 'low'))                       functions
```

## What holds in both

- **Null** is unknown: an operator or function of null is null, `and` and `or` are three-valued, a condition that is null counts
  as false. Functions that answer for null say so below.
- **Errors belong to a row** (ANSI): overflow of integers and money, division by zero (of doubles too), a text that is no number.
  The event becomes a bad event that names window and field; all others go on. A branch that is not taken does not fail:
  `if(b <> 0, a / b, 0)` never does, nor does what `and`, `or`, `coalesce` leave out.
- **NaN** equals NaN and is greater than every other number. `0.0` equals `-0.0`.
- **Types**: int32, int64, money, double, string, date (seconds), stamp (microseconds), blob, and boolean inside expressions.
  What loses nothing converts by itself: int32 to int64 to double, integers to money to double, date to stamp.
- `/` always gives a double.
- **ESP_OPCODE** (`I`, `U`, `P`, `D`, `SD`, `UB`) and **ESP_FLAGS** (letters of `N`, `P`, `R` joined) are strings like fields.
  In a window with an index they are those of the event after it was resolved: an upsert is `I` or `UB`.
- All times are in UTC.
- A text that is computed has 16 MiB at most; more is a bad event.
- Texts are compared by their bytes in UTF-8; lengths and places count characters.

## Spark SQL

- Names of fields in any case where that is unambiguous; names with other characters between backquotes.
- A number with a point or an exponent is a double (in Spark a decimal). Types to cast to: int, bigint, double, string, boolean,
  timestamp (our stamp), date (midnight of the day, as our date), decimal(18,4) (our money).
- Assigning to a narrower field needs a cast: `cast(total as bigint)`.
- Differences from Spark: `floor` and `ceil` of what does not fit int64 fail; an integer that does not fit 18 digits cannot meet
  money; upper and lower case go character by character; `url_decode` and base64 functions fail as others do; `round` works on the
  double's binary value.

## SAS expressions

Operators, weakest first: `or`, `and`, `not`, `= == != <> < <= > >=`, `&` (joins strings), `+ -`, `* / %`, sign. Strings stand in
single or double quotes, a doubled quote being one. Fields are case-sensitive; `$name` in a functional window is the field `name`.
Words and functions may be written in any case.

- Integers are counted in int64. Truth values, dates and stamps are numbers where a number is wanted: 1 and 0, seconds,
  microseconds; a number is a condition, true unless 0.
- Assigning narrows numbers: the fraction is dropped toward zero, and what does not fit is a bad event (`number-range`).
- `Today()`, `timeCurrent()`, `timeToday()`, `systemMicro()`, `systemMilli()` and `eventTimestamp()`, in compute, filter and
  functional windows, tell the system time of the event, the same in every engine: as a date, in seconds, in seconds at the
  beginning of the day, in microseconds, in milliseconds, and in microseconds. Of a delete they are null.
- Unverified against SAS, chosen: `/` of integers is a double; `match_string` takes `*` and `?` in its second argument; `substring`
  and `indexOf` count from 0, `mid` and `instr` from 1.

### Statements

An expression may be code, whose value is what it returns:

```
private integer n                     types: integer, real, string, boolean, date, money, and regex
integer array a                       several of integer, real or string
n = 0
for i = 1 to length(name) begin
  if mid(name, i, 1) = "a" then n = n + 1
end
return n
```

- `if c then ... else ...`, `while c ...`, `for i = 1 to 10 step 2 ...`, `begin ... end`, `return`; semicolons may stand between
  statements. An expression as the last statement is what is returned. `name = value` assigns where `name` is a variable, else it
  compares.
- A variable is null until it is set, and gets the type that it is declared with. Loops turn 10,000 times for an event at most,
  and a text in a variable has 1 MiB at most; more is a bad event.
- `regex r`, `r.compile("...")` with a constant, then `r.findfirst(s)`, `r.findnext(s)`, `r.matchstart()`, `r.matchlength()`,
  `r.substart(n)`, `r.sublength(n)`, `r.replace(s, new)`; places count from 1. What was found is known within one expression.
- `a.dim(n)` gives an array room for `n` elements, 1,000 at most, and keeps those that it has; `a.set(i, x)` sets the one with this
  number, from 1; `a.get(i)` is an element, null if there is none, and `a.dim()` how many there are. `get` and `dim()` of array
  fields are the same. Setting what there is no room for is a bad event. An element that is a text has 4 KiB at most.
- Statements are worked on for whole batches: each for all rows that come to it.

### Code of a window

`initialize` of a compute, filter, join or aggregate window (`<expr-initialize>` in ESP XML) has code that runs once, before the
first event, and functions:

```yaml
initialize:
  code: integer n = 0  integer limit = 10  regex r  r.compile("[0-9]+")
  functions:
    twice: {type: int32, code: return parameter(1) * 2}
```

- A function gets its arguments as `parameter(1)`, `parameter(2)` ..., or converted as `parameterstring(1)`, `parameterinteger(1)`,
  `parameterreal(1)`, `parameterdate(1)`, `parameterboolean(1)`; `parametercount()` is how many there are. It sees the fields of
  the event and the variables of the window, and gives a value of its type. It does not call itself.
- An initializer that asks for the time runs with the first event; what it sets is state.
- A variable that only the initializer sets is a **constant**. One that an expression or a function sets is **state**: `n = n + 1
  return n` numbers the events. State is in the snapshot and goes on after a restore. Expressions of one event are worked on in
  the order of the fields; a delete computes nothing and sets nothing; a bad event leaves all variables as they were.
- A window with state works on one event after the other: `n = n + 1 return n` came to 117,000 and 163,000 a second of processor
  time, on a machine that did other work besides, where columns did two and a half millions, CSV read along. Parts of times, JSON
  and regular expressions come to 14,000 to 40,000 there, `timeString` to 5,000, `timeParse` to 2,000. Such a
  window cannot be divided into shards.
  Joins and aggregates have no state of this kind: their variables are constants.

## The function language

That of functional windows: SAS functions, and no types. `$name` is a field or an earlier function, `#name` a property or a pattern
([functional windows](windows/functional.md)). A comma may stand behind the last argument.

- Numbers, texts, truth values and times become each other where they are wanted: `sum('1.5', $n)`. A blank text is null as a
  number, any other text that is no number is a bad event. Beside a number a text is compared as one.
- A number as a time is seconds since 1970.
- `string(a, b, ...)` joins; `switch(x, v, result, ..., otherwise)`; `interval(x, bound, result, ..., otherwise)` has the result
  of the first bound above `x`; `ifNext(c, result, c, result, ..., otherwise)`; `if(c, result)` is null otherwise; `mean`,
  `precision`, `true()`, `false()`.
- Of a pattern and a text the constant one is the pattern: `rgx('([a-z]+)', $name, 1)`. Of two constants the first is.
- `eventCounter()`, `eventNumber()`, `input()`: see functional windows. `guid()` and `random(low, high)`, here and in SAS
  expressions of compute and filter windows, are drawn from the number of the event in its window.

## Regular expressions

They are those of RE2, everywhere: the time that one takes rises with the text, whatever the pattern. RE2 has no lookahead, no
lookbehind and no reference to a group within the pattern (`\\1`). A pattern is a constant.
"""


def render() -> str:
    return "".join([_HEAD, *_table(), *_casts(), *_refused()])


def _table() -> list[str]:
    lines = ["\n## Functions\n\n| function | Spark SQL | SAS | may fail |\n|---|---|---|---|\n"]
    for function in TABLE.values():
        if not function.spark and not function.esp:
            continue
        spark, esp = (", ".join(f"`{name}`" for name in names) for names in (function.spark, function.esp))
        fails = "yes" if function.fallibility.value == "row" else ""
        lines.append(f"| {function.meaning} | {spark} | {esp} | {fails} |\n")
    return lines


def _casts() -> list[str]:
    lines = ["\n## Conversions by name\n\n| to | Spark SQL (beside `cast` and `try_cast`) | SAS |\n|---|---|---|\n"]
    kinds = sorted({kind for names in CAST_NAMES.values() for kind in names.values()})
    for kind in kinds:
        cells = [
            ", ".join(f"`{name}`" for name, to in CAST_NAMES[dialect].items() if to == kind)
            for dialect in (Dialect.SPARK_SQL, Dialect.ESP)
        ]
        lines.append(f"| {kind} | {cells[0]} | {cells[1]} |\n")
    return lines


def _refused() -> list[str]:
    lines = [
        "\n## Refused\n\nEvery engine must give the same output, so these are refused with the reason, but for those that tell\n"
        "the time of the event in [SAS expressions](#sas-expressions):\n\n"
    ]
    for reason in dict.fromkeys(REFUSED.values()):
        names = ", ".join(f"`{name}`" for name, why in REFUSED.items() if why == reason)
        lines.append(f"- {names}: {reason}.\n")
    return lines


def unlisted() -> set[str]:
    """Returns names that can be called but are not in the table."""
    named = {name for function in TABLE.values() for name in (*function.spark, *function.esp)}
    return {name for names in NAMES.values() for name in names} - named


if __name__ == "__main__":
    PAGE.write_text(render())
