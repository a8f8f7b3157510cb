"""The declared form of a pattern: events of interest, a logic over them, and the outputs of a match; and their rules (SPEC A30)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from hotspare.base.errors import Place
from hotspare.model.code import ALL_FIELDS, Arguments, Script
from hotspare.model.code_rules import check_script
from hotspare.model.mistakes import Mistakes
from hotspare.model.names import FIELD_NAME, nearest_names_hint, repeated
from hotspare.model.project import NOWHERE, Expression, Window
from hotspare.model.types import TIME_TYPES, FieldType, Schema
from hotspare.model.window_rules import check_expression
from hotspare.windows.pattern.logic import OPERATORS, Logic, LogicRefused, check_logic, events_in, parse_logic

UNREAD = ""
"""The event of an output that could not be parsed. The parser has reported the mistake, so checks skip the output."""
EVENTS_MAX = 60
"""Limit on the events of interest of one pattern: each is a bit of a 64-bit mask."""
KEY_TYPES = (FieldType.INT64, FieldType.STRING)


class Activity(Enum):
    """Whether a pattern or window processes events."""

    ACTIVE = "active"
    INACTIVE = "inactive"


class AfterMatch(Enum):
    """The fate of the other open matches of a pattern and partition when one of them is complete."""

    KEEP = "keep"
    """The other matches continue. An event begins at most one match of a pattern, so no match is found twice."""
    SKIP_PAST_LAST = "skip past last"
    """The other matches end, and the last event of the complete match begins none: the next match begins with a later event."""


AFTER_MATCH = {each.value: each for each in AfterMatch} | {"skip to next": AfterMatch.KEEP}
"""Values by text in projects. `skip to next` keeps the matches that begin with a later event; these are all others, so it is KEEP.
"""
ACTIVITIES = {"true": Activity.ACTIVE, "false": Activity.INACTIVE, "": Activity.ACTIVE}


@dataclass(frozen=True, slots=True)
class EventOfInterest:
    """An event of interest: an event of `source` for which `condition` is true, or any event of `source` if that is None. In a
    pattern with code, an event for which `function` returns true.
    """

    name: str
    source: str
    condition: Expression | None = None
    function: str = ""
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class OutputSelection:
    """An output of a match, for the field `target`: the field `field_name` of `event`, or an expression over the fields of that
    event.
    """

    target: str
    event: str
    field_name: str = ""
    expression: Expression | None = None
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class WindowPattern:
    """A pattern as declared. `partition`: the fields in which all events of a match agree. `time_fields`: pairs of source and
    field; empty for system time. `script`: code with the functions of the events of interest and of the output; None if the pattern
    uses expressions.
    """

    name: str
    events: tuple[EventOfInterest, ...]
    logic: str
    outputs: tuple[OutputSelection, ...]
    partition: tuple[str, ...] = ()
    time_fields: tuple[tuple[str, str], ...] = ()
    activity: Activity = Activity.ACTIVE
    script: Script | None = None
    place: Place = field(default=NOWHERE, compare=False)
    after_match: AfterMatch = AfterMatch.KEEP

    @property
    def parsed(self) -> Logic:
        """The parsed logic. Raises LogicRefused if its text is invalid."""
        return parse_logic(self.logic)

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the inputs of the pattern's events, each once."""
        return tuple(dict.fromkeys(event.source for event in self.events))


def check_pattern(window: Window, pattern: WindowPattern, given: Mapping[str, Schema | None], found: Mistakes) -> None:
    """Adds every mistake in a pattern to `found`. `given`: the schemas of the inputs by name, None for an unknown schema."""
    label, place = f"pattern {pattern.name} of window {window.name}", _place(pattern.place, window)
    if not pattern.events:
        found.add(place, f"{label} has no events of interest", "add one")
    if len(pattern.events) > EVENTS_MAX:
        found.add(place, f"{label} has {len(pattern.events)} events of interest; the limit is {EVENTS_MAX}", "use several windows")
    for name in repeated(event.name for event in pattern.events):
        found.add(place, f"{label} has two events of interest {name}", "give one of them another name")
    for event in pattern.events:
        _check_event(window, event, label, given, found)
    _check_logic(window, pattern, label, found)
    if pattern.script is None:
        _check_outputs(window, pattern, label, given, found)
    else:
        _check_code(window, pattern, pattern.script, label, found)
    for kind, pairs in (("partition", [(s, n) for s in pattern.sources for n in pattern.partition]), ("time", pattern.time_fields)):
        for source, name in pairs:
            if kind == "time" and source not in pattern.sources:
                hint = nearest_names_hint(source, pattern.sources)
                found.add(place, f"{label} has a time field of {source!r}, of which it has no event", hint)
                continue
            schema = given.get(source)
            if schema is not None and name not in schema.index:
                what = "index" if kind == "partition" else "time"
                found.add(
                    place, f"{label} has the unknown {what} field {name!r} of {source}", nearest_names_hint(name, schema.names)
                )
            elif schema is not None and kind == "time" and schema.fields[schema.index[name]].type not in TIME_TYPES:
                type_name = schema.fields[schema.index[name]].type.value
                found.add(place, f"{label} has the time field {name} of {source}, which is {type_name}", "use a date or a stamp")
    _check_partition_types(pattern, label, place, given, found)


def _check_partition_types(
    pattern: WindowPattern, label: str, place: Place, given: Mapping[str, Schema | None], found: Mistakes
) -> None:
    schemas = [schema for schema in (given.get(source) for source in pattern.sources) if schema is not None]
    for name in pattern.partition:
        types = {schema.fields[schema.index[name]].type: None for schema in schemas if name in schema.index}
        if len(types) > 1:
            written = " and ".join(each.value for each in types)
            found.add(place, f"{label} has the index field {name}, which is {written}", "compute one type before")


def _check_event(window: Window, event: EventOfInterest, label: str, given: Mapping[str, Schema | None], found: Mistakes) -> None:
    place = _place(event.place, window)
    if not FIELD_NAME.fullmatch(event.name) or event.name.lower() in OPERATORS:
        hint = "use letters, digits and '_', not a digit first, and not the name of an operator"
        found.add(place, f"{label} has an event of interest called {event.name!r}", hint)
    if event.source not in given:
        hint = nearest_names_hint(event.source, given) if given else "draw an edge to it"
        found.add(place, f"event {event.name} of {label} is of {event.source!r}, which is not an input of the window", hint)
    if event.condition is not None:
        check_expression(window, event.condition, found)


def _check_code(window: Window, pattern: WindowPattern, script: Script, label: str, found: Mistakes) -> None:
    """Adds the mistakes in a pattern's use of code to `found`. Missing functions are found later, when the code is compiled."""
    check_script(window, script, None, found)
    for event in pattern.events:
        if not FIELD_NAME.fullmatch(event.function):
            hint = "name the function that selects these events"
            found.add(_place(event.place, window), f"event {event.name} of {label} names no function of its code", hint)
        if event.condition is not None:
            message = f"event {event.name} of {label} has a condition and code"
            found.add(_place(event.place, window), message, "leave the condition out: the function selects these events")
    if pattern.outputs:
        found.add(_place(pattern.place, window), f"{label} has outputs and code", "leave the outputs out: the code emits an event")
    if script.use != ALL_FIELDS or script.arguments is not Arguments.EVENT:
        message = f"{label} chooses the fields that its code is given"
        found.add(_place(pattern.place, window), message, "leave the choice out: its functions get whole events")


def _check_logic(window: Window, pattern: WindowPattern, label: str, found: Mistakes) -> None:
    place = _place(pattern.place, window)
    if not pattern.logic:
        found.add(place, f"{label} has no logic", "write it as fby{1 minute}(a, b)")
        return
    try:
        logic = pattern.parsed
        check_logic(logic, [event.name for event in pattern.events])
    except LogicRefused as refused:
        found.add(place, f"logic of {label}: {refused}", refused.hint)
        return
    used = set(events_in(logic))
    for event in pattern.events:
        if event.name not in used:
            found.warn(_place(event.place, window), f"event {event.name} of {label} is not in its logic", "leave it out")


def _check_outputs(window: Window, pattern: WindowPattern, label: str, given: Mapping[str, Schema | None], found: Mistakes) -> None:
    events = {event.name: event for event in pattern.events}
    place = _place(pattern.place, window)
    for output in pattern.outputs:
        at = _place(output.place, window)
        if output.event == UNREAD:
            continue
        if output.expression is not None:
            check_expression(window, output.expression, found)
        event = events.get(output.event)
        schema = given.get(event.source) if event is not None else None
        if event is None:
            hint = nearest_names_hint(output.event, events)
            found.add(at, f"an output of {label} is of {output.event!r}, which is not an event of interest", hint)
        elif output.expression is None and schema is not None and output.field_name not in schema.index:
            message = f"an output of {label} is the unknown field {output.field_name!r} of {event.source}"
            found.add(at, message, nearest_names_hint(output.field_name, schema.names))
    if window.schema is None:
        return
    wanted = [f.name for f in window.schema.fields if not f.is_key]
    targets = [output.target for output in pattern.outputs]
    for name in (name for name in repeated(targets) if name):
        found.add(place, f"{label} has two outputs {name}", "leave one of them out")
    for output in pattern.outputs:
        if output.target and output.target not in wanted:
            at = _place(output.place, window)
            found.add(
                at,
                f"{label} has the output {output.target}, which is not a field, or is the key",
                nearest_names_hint(output.target, wanted),
            )
    missing = [name for name in wanted if name not in targets]
    if missing:
        found.add(place, f"{label} has no output for {', '.join(missing)}", "add one output for each field that is not a key")
    if targets.count(""):
        found.add(place, f"{label} has {len(targets)} outputs, and {len(wanted)} fields are not keys", "leave the last ones out")


def check_generated_key(window: Window, found: Mistakes) -> None:
    if window.schema is None or not window.schema.key_indexes:
        return
    keys = [f for f in window.schema.fields if f.is_key]
    if len(keys) != 1 or keys[0].type not in KEY_TYPES:
        place = window.schema_place if window.schema_place.line else window.place
        names = ", ".join(f"{f.name}:{f.type.value}" for f in keys)
        message = f"window {window.name} has the key {names}, but it makes its key itself"
        found.add(place, message, "use one key field, of type int64 or string")


def check_times(window: Window, patterns: Sequence[WindowPattern], found: Mistakes) -> None:
    """Adds a mistake for a pattern with two time fields of one input; for an input without a time field while any pattern has one;
    and for two time fields of one input across patterns. All matches must end in one order of time."""
    by_source: dict[str, str] = {}
    for pattern in patterns:
        place = _place(pattern.place, window)
        timed = dict(pattern.time_fields)
        for name in repeated(source for source, _ in pattern.time_fields):
            found.add(
                place, f"pattern {pattern.name} of window {window.name} has two time fields of {name}", "leave one of them out"
            )
        missing = [source for source in pattern.sources if source not in timed]
        others = any(each.time_fields for each in patterns)
        if missing and others:
            message = (
                f"pattern {pattern.name} of window {window.name} has no time field of {', '.join(missing)}, while others have one"
            )
            found.add(place, message, "name one for each input, or none: then time is system time; or use two windows")
        for source, name in timed.items():
            if by_source.setdefault(source, name) != name:
                message = f"window {window.name} reads the time of {source} by {by_source[source]} and by {name}"
                found.add(place, message, "use one field in all its patterns, or two windows")


def _place(place: Place, window: Window) -> Place:
    return place if place.line else window.place
