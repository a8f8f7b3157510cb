"""Random Spark SQL expressions over the fields of `samples.SCHEMA`, a few levels deep, of functions that promise
Spark's results.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from hotspare.model.types import FieldType

LONG, DOUBLE, TEXT, TRUTH = "long", "double", "text", "truth"
TARGETS: Mapping[str, FieldType] = {LONG: FieldType.INT64, DOUBLE: FieldType.DOUBLE, TEXT: FieldType.STRING}
_LEAVES = {
    LONG: ("a", "b", "0", "1", "-1", "7", "100", "3000000000"),
    DOUBLE: ("x", "1.5D", "-0.25D", "1e300D", "0D", "cast(b as double)"),
    TEXT: ("s", "'1'", "' x '", "'äb1'", "''"),
    TRUTH: ("true", "false", "a > b", "s is null"),
}
FORMS = {
    LONG: (
        "({long} + {long})",
        "({long} - {long})",
        "({long} * {long})",
        "({long} div b)",
        "({long} % {long})",
        "(- {long})",
        "abs({long})",
        "if({truth}, {long}, {long})",
        "case when {truth} then {long} when {truth} then {long} end",
        "coalesce({long}, {long})",
        "nullif({long}, {long})",
        "greatest({long}, {long})",
        "least({long}, {long}, {long})",
        "length({text})",
        "instr({text}, '1')",
        "ascii({text})",
        "crc32({text})",
        "levenshtein({text}, {text})",
        "try_cast({text} as bigint)",
        "cast({text} as bigint)",
        "cast({double} as bigint)",
        "cast({truth} as int)",
        "mod({long}, 97)",
        "year(t)",
        "dayofyear(t)",
        "unix_micros(t)",
        "unix_seconds(t)",
        "nvl2({text}, {long}, {long})",
    ),
    DOUBLE: (
        "({double} + {double})",
        "({double} - {double})",
        "({double} * {double})",
        "({double} / {double})",
        "({long} / {long})",
        "abs({double})",
        "if({truth}, {double}, {long})",
        "coalesce({double}, {long})",
        "greatest({double}, {double})",
        "least({double}, {long})",
        "cast({long} as double)",
        "sign({double})",
        "sqrt({double})",
        "round({double}, {small})",
    ),
    TEXT: (
        "concat({text}, {text})",
        "({text} || {text})",
        "concat_ws('-', {text}, {text})",
        "trim({text})",
        "ltrim({text})",
        "reverse({text})",
        "substring({text}, {small}, {small})",
        "left({text}, {small})",
        "right({text}, {small})",
        "replace({text}, '1', '--')",
        "translate({text}, '1ä', 'x')",
        "lpad({text}, {small}, 'ab')",
        "rpad({text}, {small}, '-')",
        "repeat({text}, {small})",
        "substring_index({text}, '1', {small})",
        "if({truth}, {text}, {text})",
        "coalesce({text}, {text})",
        "cast({long} as string)",
        "cast({truth} as string)",
        "md5({text})",
        "sha1({text})",
        "sha2({text}, 256)",
        "rtrim({text})",
        "upper({text})",
        "url_decode(url_encode({text}))",
        "substring_index({text}, 'b', -1)",
        "regexp_replace({text}, '[0-9]+', '<$0>')",
        "get_json_object('[' || cast({long} as string) || ',\"x\"]', '$[0]')",
        "url_encode({text})",
    ),
    TRUTH: (
        "({long} > {long})",
        "({long} = {long})",
        "({long} <=> {long})",
        "({double} >= {double})",
        "({text} < {text})",
        "({truth} and {truth})",
        "({truth} or {truth})",
        "(not {truth})",
        "({long} in (0, 1, {long}))",
        "({long} between {long} and 5)",
        "({text} like '%1%')",
        "contains({text}, '1')",
        "startswith({text}, {text})",
        "endswith({text}, {text})",
        "({text} rlike '[a-z]1')",
        "({double} is not null)",
        "isnan({double})",
    ),
}


def expressions(count: int, seed: int) -> list[tuple[str, FieldType]]:
    """Returns texts and the types of their values, each once; the same for the same seed."""
    draw = random.Random(seed)
    found: dict[str, FieldType] = {}
    while len(found) < count:
        kind = draw.choice(list(TARGETS))
        found[_expression(draw, kind, draw.randint(1, 3))] = TARGETS[kind]
    return list(found.items())


def _expression(draw: random.Random, kind: str, depth: int) -> str:
    if depth == 0:
        return draw.choice(_LEAVES[kind])
    parts: dict[str, Callable[[], str]] = {name: lambda name=name: _expression(draw, name, depth - 1) for name in FORMS}
    parts["small"] = lambda: draw.choice(["-3", "-1", "0", "1", "2", "5"])
    text = draw.choice(FORMS[kind])
    for name, make in parts.items():
        while f"{{{name}}}" in text:
            text = text.replace(f"{{{name}}}", make(), 1)
    return text
