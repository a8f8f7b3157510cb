"""Writes docs/expressions.md from the table of functions: `python -m tests.expressions.reference_page`. A test compares."""

from __future__ import annotations

from pathlib import Path

from hotspare.expressions.function_table import CAST_NAMES, FUNCTION_NAMES, FUNCTION_TABLE, REFUSED_FUNCTIONS
from hotspare.model.project import Dialect

PAGE = Path(__file__).parents[2] / "docs" / "expressions.md"

_HEAD = """# Expressions

After this page you can write conditions and computed fields in any of the three languages, and look up their functions. Compute,
filter and functional windows take expressions over the fields of one event.

| language | used in | elsewhere in YAML |
|---|---|---|
| **Spark SQL** | YAML projects | |
| **SAS expressions** | projects in SAS ESP XML | `{esp: ...}` |
| **function language** | functional windows | `{functions: ...}` |

In ESP XML `hs:dialect` selects another language. All become the same typed tree, which is evaluated over whole batches.

```
case when price > 100 then 'high' when price is null then null else 'low' end      Spark SQL
if price > 100 then return "high" else if isnull(price) then return null return "low"   SAS
if(gt($price, 100), 'high', if(isNull($price), null, 'low'))                       functions
```

The tables at the end are generated from `src/hotspare/expressions/` by `make docs`; do not edit them.

## Common rules

- **Null** is unknown. An operator or function of null is null, `and` and `or` are three-valued, and a condition that is null counts
  as false. The table below names the functions that treat null otherwise.
- **Errors belong to a row** (ANSI): overflow of integers and money, division by zero (of doubles, too), a string that is not a
  number. The event becomes a bad event that names window and field; all others continue. A branch that is not taken does not fail:
  `if(b <> 0, a / b, 0)` never does. Neither do arguments that `and`, `or` and `coalesce` skip.
- **NaN** equals NaN and is greater than every other number. `0.0` equals `-0.0`.
- **Types**: int32, int64, money, double, string, date (seconds), stamp (microseconds), blob, and boolean inside expressions.
  These conversions are implicit: int32 to int64 to double, integers to money to double, date to stamp. A double is the nearest one
  to an int64 beyond 2^53 or to an amount of money. An integer must have at most 14 digits to be combined with money, which is
  decimal(18,4); any other makes a bad event.
- `/` always gives a double.
- **ESP_OPCODE** (`I`, `U`, `P`, `D`, `SD`, `UB`) and **ESP_FLAGS** (`N`, `P`, `R`, joined) are strings like fields.
  In a window with an index they are those of the resolved event: an upsert is `I` or `UB`.
- All times are in UTC.
- A computed string has at most 16 MiB; a longer one makes a bad event.
- Strings are compared by their bytes in UTF-8. Lengths and positions count characters.

## Spark SQL

- Names of fields may be in any case if that is unambiguous. Names with other characters are between backquotes.
- A number with a point or an exponent is a double (in Spark a decimal).
- Assigning to a narrower field needs a cast: `cast(total as bigint)`.
- Types to cast to: int, bigint, double, string, boolean, timestamp (hotspare's stamp), date (hotspare's date, at midnight of the
  day), decimal(18,4) (hotspare's money).

Differences from Spark:

- `floor` and `ceil` fail if the result does not fit int64.
- An integer of more than 14 digits cannot be combined with money.
- Upper and lower case convert character by character.
- `url_decode` and base64 functions fail like other functions.
- `round` uses the double's binary value.

## SAS expressions

Operators, weakest first: `or`, `and`, `not`, `= == != <> < <= > >=`, `&` (joins strings), `+ -`, `* / %`, sign. Strings are in
single or double quotes; a doubled quote is one quote. Fields are case-sensitive; `$name` in a functional window is the field
`name`. Keywords and functions may be in any case.

- Integers are computed in int64. Booleans, dates and stamps act as numbers if a number is needed: 1 and 0, seconds,
  microseconds. A number as a condition is true unless it is 0.
- Assigning narrows numbers: the fraction is dropped toward zero. A number that does not fit makes a bad event (`number-range`).
- Unverified against SAS, so chosen: `/` of integers is a double; `match_string` takes `*` and `?` in its second argument;
  `substring` and `indexOf` count from 0, `mid` and `instr` from 1.

In compute, filter and functional windows these functions return the system time of the event, the same in every engine. For a
delete they are null.

| function | result |
|---|---|
| `Today()` | stamp, cut to whole seconds |
| `timeCurrent()` | seconds |
| `timeToday()` | seconds at the beginning of the day |
| `systemMicro()`, `eventTimestamp()` | microseconds |
| `systemMilli()` | milliseconds |

### Statements

An expression may be code, whose value is the one that it returns:

```
private integer n                     types: integer, real, string, boolean, money, date (a stamp), regex
integer array a                       several of integer, real or string
n = 0
for i = 1 to length(name) begin
  if mid(name, i, 1) = "a" then n = n + 1
end
return n
```

- **Control:** `if c then ... else ...`, `while c ...`, `for i = 1 to 10 step 2 ...`, `begin ... end`, `return`. Semicolons between
  statements are optional. An expression as the last statement is returned. `name = value` assigns if `name` is a variable;
  otherwise it compares.
- **Variables** are null until they are set, and have the declared type.
- **Limits:** the loops of one block of code make at most 10,000 turns together for an event. Each call of a function counts its
  own turns. A string in a variable has at most 1 MiB. Exceeding either makes a bad event.
- **Regular expressions:** `regex r`, `r.compile("...")` with a constant, then `r.findfirst(s)`, `r.findnext(s)`, `r.matchstart()`,
  `r.matchlength()`, `r.substart(n)`, `r.sublength(n)`, `r.replace(s, new)`. Positions count from 1. Matches are remembered within
  one expression.
- **Arrays:** `a.dim(n)` gives an array room for `n` elements, at most 1,000, and keeps existing ones. `a.dim()` is its size.
  `a.set(i, x)` sets element `i`, from 1; `a.get(i)` returns it, or null if there is none. `get` and `dim()` work on array fields,
  too. Setting an element beyond the size makes a bad event. A string element has at most 4 KiB.
- Statements run over whole batches: each for all rows that reach it.

### Code of a window

`initialize` of a compute, filter, join or aggregate window (`<expr-initialize>` in ESP XML) has code that runs once, before the
first event, and functions:

```yaml
initialize:
  code: integer n = 0  integer limit = 10  regex r  r.compile("[0-9]+")
  functions:
    twice: {type: int32, code: return parameter(1) * 2}
```

- **Arguments** of a function are `parameter(1)`, `parameter(2)` ..., or converted `parameterstring(1)`, `parameterinteger(1)`,
  `parameterreal(1)`, `parameterdate(1)`, `parameterboolean(1)`. `parametercount()` is their number.
- **Functions** see the fields of the event and the variables of the window, and return a value of their type. They cannot call
  themselves.
- An initializer that reads the time runs with the first event. The variables that it sets are state.
- A variable that only the initializer sets is a **constant**. One that an expression or a function sets is **state**: `n = n + 1
  return n` numbers the events. Snapshots contain state, and a restore continues with it.
- The expressions of one event are evaluated in the order of the fields. A delete computes and sets nothing. A bad event leaves all
  variables unchanged.
- Variables of joins and aggregates are always constants.

A window with state processes one event after the other, and cannot be divided into shards. These rates were measured on a machine
that did other work, too:

| expression | events per second of processor time |
|---|---|
| without state, evaluated by columns, including reading CSV | 2,500,000 |
| `n = n + 1 return n` | 117,000 and 163,000 |
| parts of times, JSON, regular expressions | 14,000 to 40,000 |
| `timeString` | 5,000 |
| `timeParse` | 2,000 |

## The function language

This is the language of functional windows: SAS functions, without types. `$name` is a field or an earlier function, `#name` a
property or a pattern ([functional windows](windows/functional.md)). A comma after the last argument is allowed.

- Numbers, strings, booleans and times convert to each other as needed: `sum('1.5', $n)`. As a number a blank string is null, and
  any other string that is not a number makes a bad event. A string that is compared with a number is compared as a number.
- A number as a time is seconds since 1970.
- `string(a, b, ...)` joins. `switch(x, v, result, ..., otherwise)` and `ifNext(c, result, c, result, ..., otherwise)` select.
  `interval(x, bound, result, ..., otherwise)` has the result of the first bound above `x`. `if(c, result)` is null if `c` is false.
- Other functions: `mean`, `precision`, `true()`, `false()`.
- Of a pattern and a string the constant one is the pattern: `rgx('([a-z]+)', $name, 1)`. Of two constants the first is.
- `eventCounter()`, `eventNumber()`, `input()`: see functional windows.
- `guid()` and `random(low, high)`, here and in SAS expressions of compute and filter windows, are derived from the number of the
  event in its window.

## Regular expressions

All languages use RE2: the time of a match grows with the text, whatever the pattern. RE2 has no lookahead, no
lookbehind and no reference to a group within the pattern (`\\1`). A pattern is a constant.
"""


def render() -> str:
    return "".join([_HEAD, *_table(), *_casts(), *_refused()])


def _table() -> list[str]:
    lines = ["\n## Functions\n\n| function | Spark SQL | SAS | may fail |\n|---|---|---|---|\n"]
    for function in FUNCTION_TABLE.values():
        if not function.spark_names and not function.esp_names:
            continue
        spark, esp = (", ".join(f"`{name}`" for name in names) for names in (function.spark_names, function.esp_names))
        fails = "yes" if function.fallibility.value == "row" else ""
        lines.append(f"| {function.meaning} | {spark} | {esp} | {fails} |\n")
    return lines


def _casts() -> list[str]:
    lines = ["\n## Conversions by name\n\n| to | Spark SQL (in addition to `cast` and `try_cast`) | SAS |\n|---|---|---|\n"]
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
        "\n## Refused\n\nEvery engine must give the same output, so these functions are refused with the reason. Exceptions are\n"
        "those that return the time of the event in [SAS expressions](#sas-expressions):\n\n"
    ]
    for reason in dict.fromkeys(REFUSED_FUNCTIONS.values()):
        names = ", ".join(f"`{name}`" for name, why in REFUSED_FUNCTIONS.items() if why == reason)
        lines.append(f"- {names}: {reason}.\n")
    return lines


def unlisted() -> set[str]:
    """Returns names that can be called but are not in the table."""
    named = {name for function in FUNCTION_TABLE.values() for name in (*function.spark_names, *function.esp_names)}
    return {name for names in FUNCTION_NAMES.values() for name in names} - named


if __name__ == "__main__":
    PAGE.write_text(render())
