"""From the properties of connectors that make their events to their generators: the timer, and code (SPEC I11, I13)."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from hotspare.adapters.esp.property_values import count, wrong
from hotspare.adapters.files.canonical import KeyPresence
from hotspare.adapters.generated.code_source import CodeOptions, CodeSource
from hotspare.adapters.generated.lua_files import file_texts, files_digest, lua_texts, opened_paths
from hotspare.adapters.generated.python_files import MODULE as PYTHON_MODULE
from hotspare.adapters.generated.python_files import python_files
from hotspare.adapters.generated.steps import Generator
from hotspare.adapters.generated.timer import MONTHS, UNITS, Timer, TimerOptions, base_time_us
from hotspare.base.errors import Mistake, ProjectError, UsageError
from hotspare.model.code import Code, CodeLimits, Language, Module, Script
from hotspare.model.durations import parse_duration
from hotspare.model.names import FIELD_NAME
from hotspare.model.project import Connector, KeyOrigin, Window
from hotspare.model.types import Schema
from hotspare.scripting.contract import ProgramText
from hotspare.scripting.programs import compile_program

CODE_KINDS = frozenset(language.value for language in Language)
STEPS_MAX = 100_000_000
"""Of one call, which may make many events."""
STATE_BYTES_MAX = 1 << 18
INTERVAL_DEFAULT = "1 second"
LUA_CALL = "hs_publish"
_ESP_CALL = re.compile(r"\b(esp_\w+)\s*\(")
_COMMENT = re.compile(r"--\[\[.*?\]\]|--[^\n]*", re.DOTALL)
_LUA_MODULE = "hotspare publisher"


def code_source(connector: Connector, schema: Schema, home: Path) -> Callable[[], CodeSource]:
    """What makes a fresh generator. UsageError for a value that cannot be used; ProjectError where the code cannot be loaded."""
    code = connector.get("code")
    if not code.strip():
        raise UsageError(f"connector {connector.name} has no code", hint="give it the property code")
    function = connector.get("publish").strip() or "publish"
    if not FIELD_NAME.fullmatch(function):
        raise wrong(connector, "publish", function, "the name of a function")
    language = Language(connector.kind)
    modules: tuple[Module, ...]
    if language is Language.LUA:
        call, texts = LUA_CALL, file_texts(code, home)
        own = files("hotspare.adapters.generated").joinpath("publisher.lua").read_text(encoding="utf-8")
        head = f'function hs_function() return "{function}" end '
        modules = (Module(_LUA_MODULE, language, Code(head + lua_texts(texts) + own)),)
    else:
        call, (code, module, texts) = function, python_files(code, home)
        modules = (Module(PYTHON_MODULE, language, Code(module)),) if module else ()
    script = Script(
        language,
        Code.of(code, connector.place),
        function=function,
        init=connector.get("init").strip(),
        limits=CodeLimits(STEPS_MAX, STATE_BYTES_MAX),
    )
    program = compile_program(ProgramText(f"connector {connector.name}", script, modules))
    missing = [
        name
        for name in sorted(set(_ESP_CALL.findall(_COMMENT.sub("", code))))
        if language is Language.LUA and not program.defines(name)
    ]
    if missing:
        hint = "a publisher has no network, and reads no windows: bring in what it needs as a file of the project"
        raise UsageError(f"the code of connector {connector.name} calls {', '.join(missing)}, which is not there", hint=hint)
    options = CodeOptions(schema, call, _interval_us(connector), count(connector, "maxevents"), files_digest(texts))
    return lambda: CodeSource(program.open, options)


def has_its_files(connector: Connector, home: Path) -> bool:
    """Whether every file that the code opens is there, as far as its text tells."""
    code = connector.get("code")
    if connector.kind == Language.LUA.value:
        return opened_paths(code) == file_texts(code, home).keys()
    files_of = python_files(code, home)
    return not files_of.module or bool(files_of.texts)


def _interval_us(connector: Connector) -> int:
    """A bare number is milliseconds."""
    text = connector.get("interval").strip() or INTERVAL_DEFAULT
    try:
        return int(text) * 1000 if text.isascii() and text.isdigit() else parse_duration(text)
    except ValueError as error:
        raise wrong(connector, "interval", text, "a duration such as 5 seconds") from error


TIMER_KIND = "timer"
GENERATED_KINDS = frozenset({TIMER_KIND, *CODE_KINDS})


def generator_of(connector: Connector, window: Window, schema: Schema, home: Path) -> Callable[[], Generator]:
    """What makes a fresh generator of a connector. UsageError for a value that cannot be used, naming the connector.
    `home`: the folder whose files code may read."""
    if connector.kind in CODE_KINDS:
        return code_source(connector, schema, home)
    is_generated = getattr(window, "key_origin", KeyOrigin.GIVEN) is KeyOrigin.AUTOGENERATED
    options = timer_options(connector, schema, KeyPresence.ABSENT if is_generated else KeyPresence.PRESENT)
    return lambda: Timer(options)


def generated_mistakes(connector: Connector, schema: Schema, home: Path) -> tuple[Mistake, ...]:
    """What the generator of a connector would refuse at its start. What holds a reference to a project property that is not set is
    passed over, and so is code that opens a file which is not beside the project."""
    if any("@" in value for name, value in connector.properties if name != "code"):
        return ()
    try:
        if connector.kind in CODE_KINDS:
            if has_its_files(connector, home):
                code_source(connector, schema, home)
        else:
            timer_options(connector, schema)
    except ProjectError as error:
        return tuple(error.mistakes)
    except UsageError as error:
        return (Mistake(connector.place, error.message, error.hint),)
    return ()


def timer_options(connector: Connector, schema: Schema, key: KeyPresence = KeyPresence.PRESENT) -> TimerOptions:
    unit = connector.get("unit", "second").strip().lower().removesuffix("s")
    if unit not in UNITS and unit not in MONTHS:
        raise wrong(connector, "unit", unit, " or ".join((*MONTHS, *UNITS)))
    base = connector.get("basetime").strip()
    return TimerOptions(
        schema=schema,
        interval=count(connector, "interval"),
        unit=unit,
        label=connector.get("label"),
        base_us=base_time_us(base, connector.get("timeformat")) if base else None,
        events_max=count(connector, "maxevents"),
        key=key,
    )
