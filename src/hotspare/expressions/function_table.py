"""The table of functions of both dialects, and the names that are refused because an engine could not repeat their results."""

from __future__ import annotations

from types import MappingProxyType

from hotspare.expressions import (
    arithmetic,
    array_variables,
    arrays,
    casts,
    comparison,
    documents,
    patterns,
    text,
    times,
)
from hotspare.expressions.function import Function
from hotspare.model.project import Dialect

_VALUE_MODULES = (arithmetic, arrays, array_variables, comparison, casts)
_TEXT_MODULES = (text, patterns, documents)
_MODULES = (*_VALUE_MODULES, *_TEXT_MODULES, times)

FUNCTION_TABLE = MappingProxyType({f.name: f for module in _MODULES for f in module.FUNCTIONS})
"""All functions and operators of both dialects, by internal name."""

_SAS_CASTS = MappingProxyType(
    {
        "tointeger": "int64",
        "integer": "int64",
        "int": "int64",
        "long": "int64",
        "todouble": "double",
        "toreal": "double",
        "double": "double",
        "tostring": "string",
        "string": "string",
        "todate": "date",
        "tostamp": "stamp",
        "boolean": "boolean",
    }
)
CAST_NAMES = MappingProxyType(
    {
        Dialect.ESP: _SAS_CASTS,
        Dialect.FUNCTIONS: _SAS_CASTS,
        Dialect.SPARK_SQL: MappingProxyType(
            {
                "int": "int32",
                "bigint": "int64",
                "double": "double",
                "string": "string",
                "boolean": "boolean",
                "timestamp": "stamp",
            }
        ),
    }
)
"""For each dialect, the functions that are only casts, with the type that they cast to."""

EVENT_COUNTER = "eventcounter"
"""The name of the only function with state: the functional window counts its events and supplies the number (A25)."""

RANDOM_FUNCTIONS = MappingProxyType({"guid": "guid", "random": "random", "rand": "random"})
"""The random functions of SAS, which here draw from the position of the event, so that every engine draws the same."""

CLOCK_FUNCTIONS = MappingProxyType(
    {
        "today": "today",
        "timecurrent": "seconds",
        "timetoday": "midnight",
        "systemmicro": "micros",
        "systemmilli": "millis",
        "eventtimestamp": "micros",
    }
)
"""The functions of SAS that read a clock: here they return the event's system time, which is part of the input and so the same in
every engine. Spark's functions of these names are refused.
"""

_CLOCK_REASON = "it reads a clock, which differs between engines and runs"
RANDOM_REASON = "it draws a random value, which differs between engines and runs"
_MACHINE_REASON = "it depends on the machine that it runs on"

REFUSED_FUNCTIONS = MappingProxyType(
    {
        **dict.fromkeys(("now", "current_timestamp", "current_date", "curdate", "current_time", "localtimestamp"), _CLOCK_REASON),
        **dict.fromkeys(("unix_timestamp", "today", "timecurrent", "timetoday", "timestamp_now"), _CLOCK_REASON),
        **dict.fromkeys(("systemmicro", "systemmilli", "systemdatetime", "eventtimestamp"), _CLOCK_REASON),
        **dict.fromkeys(("randn", "randstr", "uniform", "shuffle", "uuid"), RANDOM_REASON),
        **dict.fromkeys(("monotonically_increasing_id", "spark_partition_id", "input_file_name"), _MACHINE_REASON),
        **dict.fromkeys(("current_user", "current_catalog", "current_database", "version", "getenv"), _MACHINE_REASON),
    }
)
"""The functions that are refused: lower-case name to the reason."""


def _names(dialect: Dialect) -> dict[str, str]:
    found: dict[str, str] = {}
    for function in FUNCTION_TABLE.values():
        for name in function.esp_names if dialect.is_sas else function.spark_names:
            if name in found:
                raise AssertionError(f"{name} names both {found[name]} and {function.name}")
            found[name] = function.name
    return found


FUNCTION_NAMES = MappingProxyType({dialect: MappingProxyType(_names(dialect)) for dialect in Dialect})
"""For each dialect, the lower-case names that expressions may call, mapped to the internal names of FUNCTION_TABLE."""


def lookup_function(name: str) -> Function:
    function: Function = FUNCTION_TABLE[name]
    return function
