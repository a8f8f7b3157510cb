"""Pattern window: matches of events that must arrive in an order, together, or not at all (SPEC A30).

Each pattern names events of interest, a logic over them, and the outputs of a match. An event of interest is a condition on events
of one input. A name in it that is not a field is a variable: `v == field` binds the variable the first time, and requires the same
value from then on. Outputs are inserts with a key that the window generates: 0, 1, 2 ..., or GUID-like texts if the key is a
string.

Events of interest may also be functions of user code. In ESP XML `<lua-events>` or `<python-events>` then replace `<events>`, and
`<code output="...">` replaces `<output>`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hotspare.model import scripts
from hotspare.model.code import LANGUAGES, Language, Script
from hotspare.model.frontends.esp_xml.elements import DIALECT, PATTERN_AFTER_MATCH, ElementShape, shape, window_shape
from hotspare.model.frontends.esp_xml.values import EspValues
from hotspare.model.frontends.esp_xml.xml_writer import XmlElement, expression
from hotspare.model.frontends.values import parse_option
from hotspare.model.frontends.yaml.tree import MappingNode, TextNode
from hotspare.model.frontends.yaml.values import YamlValues
from hotspare.model.frontends.yaml.yaml_writer import Written, YamlWriter
from hotspare.model.meanings import expression_meaning
from hotspare.model.mistakes import Mistakes
from hotspare.model.names import FIELD_NAME, repeated
from hotspare.model.project import Dialect, Expression, Window
from hotspare.model.scripts import XML_ATTRIBUTES, XML_IDLE
from hotspare.model.types import Schema
from hotspare.model.window_type import (
    CarriedFields,
    ExpressionUse,
    HorizonMeasure,
    Inputs,
    StateHorizon,
    WindowExpression,
    WindowInput,
    WindowType,
)
from hotspare.windows.pattern.logic import certain_events, limits_in, open_us_max
from hotspare.windows.pattern.patterns import (
    ACTIVITIES,
    AFTER_MATCH,
    UNREAD,
    Activity,
    AfterMatch,
    EventOfInterest,
    OutputSelection,
    WindowPattern,
    check_generated_key,
    check_pattern,
    check_times,
)

_OUTPUT = "output"
"""The default name of the function that makes the output of a match."""
_CODE_KEYS = ("code", "code-file", "modules", "init", "transient", "steps-max", "state-bytes-max")
_SCRIPT_KEYS = ("language", _OUTPUT, *_CODE_KEYS)
_EVENT_ELEMENTS = {f"{language.value}-events": language for language in Language}
_SCRIPT_CHILDREN = f"{' '.join(_EVENT_ELEMENTS)} code"
_SCRIPT_ELEMENTS: Mapping[str, ElementShape] = {
    **{tag: shape(children="event") for tag in _EVENT_ELEMENTS},
    **{f"{tag}/event": shape("name source func") for tag in _EVENT_ELEMENTS},
    "code": shape(_OUTPUT),
    "use": scripts.XML_ELEMENTS["use"],
}
_SCRIPT_TEXTS = frozenset({"code"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternWindow(Window):
    patterns: tuple[WindowPattern, ...]
    activity: Activity = Activity.ACTIVE

    @property
    def active_patterns(self) -> tuple[WindowPattern, ...]:
        """The patterns that process events: those that are active, or none if the window is inactive."""
        if self.activity is Activity.INACTIVE:
            return ()
        return tuple(pattern for pattern in self.patterns if pattern.activity is Activity.ACTIVE)

    @property
    def time_fields(self) -> dict[str, str]:
        """The time field of the events of each source, by the name of the source; empty for system time."""
        return {source: name for pattern in self.active_patterns for source, name in pattern.time_fields}

    @property
    def has_limits(self) -> bool:
        return any(limit for pattern in self.active_patterns for limit in limits_in(pattern.parsed))


class PatternType(WindowType[PatternWindow]):
    name = "pattern"
    declared = PatternWindow
    inputs: ClassVar[Inputs] = Inputs(1, None)
    is_order_dependent = True
    keeps_input = False
    yaml_keys = ("patterns", "active")
    xml = window_shape("active", "patterns")
    xml_elements: ClassVar[Mapping[str, ElementShape]] = {
        "patterns": shape(children="pattern"),
        "pattern": shape(
            f"name index active {PATTERN_AFTER_MATCH} {XML_ATTRIBUTES}",
            f"events logic output timefields {_SCRIPT_CHILDREN}",
            idle=XML_IDLE,
        ),
        "events": shape(children="event"),
        "event": shape(f"name source {DIALECT}"),
        "logic": shape(),
        "output": shape(children="field-expr field-selection"),
        "field-expr": shape(f"node {DIALECT}"),
        "field-selection": shape("name node"),
        "timefields": shape(children="timefield"),
        "timefield": shape("field source"),
        **_SCRIPT_ELEMENTS,
    }
    xml_texts = _SCRIPT_TEXTS | {"event", "logic", "field-expr"}
    example = """
windows:
  trades: {type: source, index: empty, opcodes: insert-only, schema: "id*:int64,user:string,price:double,at:stamp"}
  alarms: {type: source, opcodes: any, schema: "id*:string,user:string,level:int64"}
  rises:
    type: pattern
    index: empty
    schema: "id*:int64,user:string,low:double,high:double"
    patterns:
      twice:
        index: [user]
        events:
          first: {source: trades, condition: price > 0 and p = price}
          second: {source: trades, condition: price > p * 1.5 and q = price}
          third: {source: trades, condition: price > q and price - p > 1}
        logic: fby{10 seconds}(first, seen:2(second), third)
        after_match: skip past last
        outputs: {user: first.user, low: first.price, high: {third: price * 2}}
        timefields: {trades: at}
  missing:
    type: pattern
    schema: "id*:string,user:string,trade:int64"
    patterns:
      unanswered:
        events:
          trade: {source: trades, condition: u = user}
          alarm: {source: alarms, condition: u = user and level > 1}
        logic: fby{1 second}(trade, notoccur(alarm))
        outputs: {user: trade.user, trade: trade.id}
      next:
        events:
          trade: {source: trades, condition: price > 1}
          other: {source: trades, condition: price <= 1}
          alarm: {source: alarms}
        logic: or{2 seconds}(and(is:2(trade), notoccur(alarm)), fby(not(not(other)), not(alarm)))
        outputs: {user: trade.user, trade: other.id}
      off:
        active: false
        events: {alarm: {source: alarms}}
        logic: seen:3(alarm)
        outputs: {user: alarm.user, trade: {alarm: level + 1}}
  falls:
    type: pattern
    index: empty
    schema: "id*:int64,user:string,prices:array(dbl),trades:int64"
    patterns:
      thrice:
        index: [user]
        events:
          first: {source: trades, function: begin}
          lower: {source: trades, function: falls}
        logic: fby{1 minute}(first, is:2(lower))
        language: python
        output: made
        init: start
        transient: [asked]
        steps-max: 100000
        state-bytes-max: 65536
        code: |
          asked, found = 0, 0

          def start():
              global found
              found = 0

          def begin(event, context):
              return event["price"] is not None, {"price": event["price"]}

          def falls(event, context):
              falls = event["price"] is not None and event["price"] < context["data"]["price"]
              return falls, {"price": event["price"]}

          def made(context):
              global found
              found += 1
              events = [context["events"]["first"], *context["events"]["lower"]]
              return {"user": events[0]["user"], "prices": [each["price"] for each in events], "trades": found}
      alarmed:
        events:
          trade: {source: trades, function: trade}
          alarm: {source: alarms, function: alarm}
        logic: fby{5 seconds}(trade, notoccur{2 seconds}(alarm))
        code: |
          function trade(event) return event.user ~= nil, {user = event.user} end
          function alarm(event, context) return event.user == context.data.user end
          function output(context) return {user = context.data.user, trades = context.events.trade.id} end
edges: [trades -> rises, trades -> missing, alarms -> missing, trades -> falls, alarms -> falls]
"""

    def read_yaml(self, values: YamlValues, node: MappingNode, common: Mapping[str, Any]) -> PatternWindow:
        found = [_yaml_pattern(values, name, each, common) for name, each in _mappings(values, node, "patterns").items()]
        return PatternWindow(**common, patterns=tuple(found), activity=_yaml_activity(values, node))

    def write_yaml(self, window: PatternWindow, writer: YamlWriter) -> Written:
        written: Written = {"patterns": {pattern.name: _yaml_written(pattern, writer) for pattern in window.patterns}}
        return written | ({"active": False} if window.activity is Activity.INACTIVE else {})

    def read_xml(self, values: EspValues, element: Any, common: Mapping[str, Any]) -> PatternWindow:
        found = [
            _xml_pattern(values, number, each, common.get("schema"))
            for number, each in enumerate(values.elements_at(element, "patterns/pattern"), 1)
        ]
        return PatternWindow(**common, patterns=tuple(found), activity=_xml_activity(values, element))

    def write_xml(self, window: PatternWindow) -> XmlElement:
        attributes = {"active": "false"} if window.activity is Activity.INACTIVE else {}
        return XmlElement(
            "", attributes=attributes, children=(XmlElement("patterns", children=tuple(map(_xml_written, window.patterns))),)
        )

    def check(self, window: PatternWindow, given: Sequence[WindowInput], found: Mistakes) -> None:
        if not window.patterns:
            found.add(window.place, f"window {window.name} has no patterns", "write patterns: {name: {...}}")
        for name in repeated(pattern.name for pattern in window.patterns):
            found.add(window.place, f"window {window.name} has two patterns {name}", "give one of them another name")
        for name in repeated(each.name for each in given):
            found.add(window.place, f"window {window.name} reads {name} by two edges", "leave one of them out")
        schemas = {each.name: each.schema for each in given}
        for pattern in window.patterns:
            check_pattern(window, pattern, schemas, found)
        check_generated_key(window, found)
        check_times(window, window.active_patterns, found)

    def meaning(self, window: PatternWindow, schema: Schema) -> dict[str, str]:
        """Returns the texts that determine outputs, by name, for the active patterns in their order."""
        text: dict[str, str] = {}
        for number, pattern in enumerate(window.active_patterns):
            start = f"pattern {number}"
            text |= {f"{start} logic": str(pattern.parsed), f"{start} partition": ", ".join(pattern.partition)}
            text[f"{start} time"] = ", ".join(f"{source} by {name}" for source, name in sorted(pattern.time_fields))
            if pattern.after_match is not AfterMatch.KEEP:
                text[f"{start} after match"] = pattern.after_match.value
            if pattern.script is not None:
                text |= {f"{start} {key}": value for key, value in pattern.script.meaning().items()}
                text |= {f"{start} event {event.name}": f"{event.source}: function {event.function}" for event in pattern.events}
                continue
            for event in pattern.events:
                condition = expression_meaning(event.condition) if event.condition is not None else "any"
                text[f"{start} event {event.name}"] = f"{event.source}: {condition}"
            for output in pattern.outputs:
                value = expression_meaning(output.expression) if output.expression is not None else f"field {output.field_name}"
                text[f"{start} output {output.target}"] = f"{output.event}: {value}"
        return text

    def window_expressions(self, window: PatternWindow) -> Iterator[WindowExpression]:
        for pattern in window.patterns:
            for event in pattern.events:
                if event.condition is not None:
                    yield WindowExpression(event.condition, use=ExpressionUse.CONDITION)
            yield from (WindowExpression(output.expression) for output in pattern.outputs if output.expression is not None)

    def scripts(self, window: PatternWindow) -> Iterator[Script]:
        yield from (pattern.script for pattern in window.patterns if pattern.script is not None)

    def visible(self, window: PatternWindow, given: Sequence[WindowInput]) -> Schema | None:
        """Returns None: each expression sees other fields, and variables, which `windows.pattern.conditions` resolves."""
        return None

    def state_horizons(self, window: PatternWindow) -> Iterator[StateHorizon]:
        for pattern in window.active_patterns:
            if pattern.script is not None:
                yield StateHorizon(HorizonMeasure.EVERYTHING, 0, f"keeps what the variables of its pattern {pattern.name} hold")
            span_us = open_us_max(pattern.parsed)
            by = ", ".join(name for _, name in pattern.time_fields)
            if span_us is None:
                what = f"waits without end for matches of its pattern {pattern.name}"
                yield StateHorizon(HorizonMeasure.EVERYTHING, 0, what, remedy="give its logic a limit, as in fby{1 minute}(a, b)")
            else:
                yield StateHorizon(HorizonMeasure.TIME, span_us, f"waits for matches of its pattern {pattern.name}", by)

    def event_time_fields(self, window: PatternWindow, given: Sequence[WindowInput]) -> Mapping[str, str]:
        return window.time_fields

    def carried_fields(self, window: PatternWindow, given: Sequence[WindowInput], keys: Sequence[frozenset[str]]) -> CarriedFields:
        """Returns the output fields that are a partition field of an event that every match contains. Returns a refusal if a
        pattern has code, or if the events of a match may be of several partitions."""
        held = {each.name: fields for each, fields in zip(given, keys, strict=True)}
        fields: list[frozenset[str]] = []
        for pattern in window.active_patterns:
            if pattern.script is not None:
                return CarriedFields(
                    refusal=f"code of its pattern {pattern.name} may keep something of the events of all partitions"
                )
            common = frozenset.intersection(*(held.get(source, frozenset()) for source in pattern.sources))
            agreed = common.intersection(pattern.partition)
            if not agreed:
                hint = "name the field by which its sources are partitioned in the index of the pattern"
                return CarriedFields(
                    refusal=f"events of a match of its pattern {pattern.name} may be of several partitions", hint=hint
                )
            certain = certain_events(pattern.parsed)
            fields.append(frozenset(o.target for o in pattern.outputs if o.field_name in agreed and o.event in certain))
        return CarriedFields(frozenset.intersection(*fields) if fields else frozenset())


def _mappings(values: YamlValues, node: MappingNode, key: str) -> dict[str, MappingNode]:
    """Returns the mappings under `key` by name. Entries that are not mappings are reported and omitted."""
    found: dict[str, MappingNode] = {}
    for name, each in (values.entries(node, key).values if key in node.values else {}).items():
        if isinstance(each, MappingNode):
            found[name] = each
        else:
            values.found.add(each.place, f"{name} is not a mapping", "write name: value pairs, indented below it")
    return found


def _yaml_activity(values: YamlValues, node: MappingNode) -> Activity:
    return values.option(node, "active", ACTIVITIES, "active:", Activity.ACTIVE)


def _yaml_pattern(values: YamlValues, name: str, node: MappingNode, common: Mapping[str, Any]) -> WindowPattern:
    keys = ("events", "logic", "outputs", "index", "timefields", "after_match", "active", *_SCRIPT_KEYS)
    values.reject_unknown_keys(node, keys, f"pattern {name}")
    script, events = _script_from_yaml(values, node), []
    for event, each in _mappings(values, node, "events").items():
        values.reject_unknown_keys(each, ("source", "condition" if script is None else "function"), f"event {event}")
        condition = values.expression(each.values["condition"], "condition") if "condition" in each.values else None
        source, function = values.text(each, "source").strip(), values.text(each, "function").strip()
        events.append(EventOfInterest(event, source, condition, function, each.place))
    outputs = values.entries(node, "outputs").values if "outputs" in node.values else {}
    return WindowPattern(
        name,
        tuple(events),
        values.text(node, "logic").strip(),
        _in_order([_yaml_output(values, target, each) for target, each in outputs.items()], common.get("schema")),
        tuple(text.value for text in values.text_list(node.values.get("index"), "index")),
        values.pairs(node, "timefields"),
        _yaml_activity(values, node),
        script,
        node.place,
        values.option(node, "after_match", AFTER_MATCH, "after_match:", AfterMatch.KEEP),
    )


def _yaml_output(values: YamlValues, target: str, node: Any) -> OutputSelection:
    if isinstance(node, TextNode):
        event, _, name = (part.strip() for part in node.value.partition("."))
        if event and FIELD_NAME.fullmatch(name):
            return OutputSelection(target, event, name, None, node.place)
    if isinstance(node, MappingNode) and len(node.values) == 1:
        event, written = next(iter(node.values.items()))
        if event != UNREAD:
            return OutputSelection(target, event, "", values.expression(written, f"outputs: {target}"), node.place)
    values.found.add(node.place, f"output {target} is not a field of an event", "write event.field, or {event: expression}")
    return OutputSelection(target, UNREAD, "", None, node.place)


def _in_order(outputs: list[OutputSelection], schema: Schema | None) -> tuple[OutputSelection, ...]:
    """Returns the outputs in the order of the fields of `schema`; those that name no field are last."""
    if schema is not None:
        outputs.sort(key=lambda output: schema.index.get(output.target, len(schema)))
    return tuple(outputs)


def _yaml_written(pattern: WindowPattern, writer: YamlWriter) -> Written:
    events: Written = {}
    for event in pattern.events:
        events[event.name] = {"source": event.source}
        if event.condition is not None:
            events[event.name]["condition"] = writer.expression(event.condition)
        if event.function:
            events[event.name]["function"] = event.function
    outputs: Written = {}
    for output in pattern.outputs:
        if output.expression is not None:
            outputs[output.target] = {output.event: writer.expression(output.expression)}
        else:
            outputs[output.target] = f"{output.event}.{output.field_name}"
    written: Written = {"events": events, "logic": pattern.logic}
    if pattern.script is not None:
        written |= _script_to_yaml(pattern.script)
    if outputs or pattern.script is None:
        written["outputs"] = outputs
    if pattern.partition:
        written["index"] = list(pattern.partition)
    if pattern.time_fields:
        written["timefields"] = dict(pattern.time_fields)
    if pattern.after_match is not AfterMatch.KEEP:
        written["after_match"] = pattern.after_match.value
    if pattern.activity is Activity.INACTIVE:
        written["active"] = False
    return written


def _xml_activity(values: EspValues, element: Any) -> Activity:
    is_active = not values.attribute(element, "active") or values.truth(element, "active")
    return Activity.ACTIVE if is_active else Activity.INACTIVE


def _xml_after_match(values: EspValues, element: Any) -> AfterMatch:
    text, place = values.attribute(element, PATTERN_AFTER_MATCH), values.tree.place(element)
    found = parse_option(text, AFTER_MATCH, "hs:after-match", place, values.found) if text else None
    return AfterMatch.KEEP if found is None else found


def _xml_pattern(values: EspValues, number: int, element: Any, schema: Schema | None) -> WindowPattern:
    tree = values.tree
    script = _script_from_xml(values, element)
    events = _events_from_xml(values, element)
    for each in values.elements_at(element, "events/event"):
        condition = values.expression(each)
        name, source = values.attribute(each, "name"), values.attribute(each, "source")
        events.append(EventOfInterest(name, source, condition if condition.text else None, place=tree.place(each)))
    logic = tree.only_child(element, "logic")
    times = [
        (values.attribute(each, "source"), values.attribute(each, "field"))
        for each in values.elements_at(element, "timefields/timefield")
    ]
    return WindowPattern(
        values.attribute(element, "name") or f"pattern{number}",
        tuple(events),
        tree.text(logic).strip() if logic is not None else "",
        tuple(_xml_outputs(values, element, schema)),
        tuple(part.strip() for part in values.attribute(element, "index").split(",") if part.strip()),
        tuple(sorted(times)),
        _xml_activity(values, element),
        script,
        tree.place(element),
        _xml_after_match(values, element),
    )


def _xml_outputs(values: EspValues, element: Any, schema: Schema | None) -> Iterator[OutputSelection]:
    """Yields the outputs in XML, which are for the non-key fields of `schema` in order. An empty expression is null. An output
    without an event is reported.
    """
    targets = [f.name for f in schema.fields if not f.is_key] if schema is not None else []
    wrapper = values.tree.only_child(element, "output")
    children = [child for child in (wrapper if wrapper is not None else ()) if child.tag in ("field-expr", "field-selection")]
    for i, child in enumerate(children):
        values.tree.check(child)
        target, node, place = targets[i] if i < len(targets) else "", values.attribute(child, "node"), values.tree.place(child)
        if node == UNREAD:
            values.found.add(place, f"a <{child.tag}> names no event of interest", 'add the attribute node="..."')
        if child.tag == "field-selection":
            yield OutputSelection(target, node, values.attribute(child, "name"), None, place)
        else:
            written = values.expression(child)
            yield OutputSelection(target, node, "", written if written.text else Expression("null", Dialect.ESP, place), place)


def _xml_written(pattern: WindowPattern) -> XmlElement:
    logic, attributes = XmlElement("logic", pattern.logic), {"name": pattern.name}
    if pattern.script is not None:
        written = _script_to_xml(pattern.script)
        attributes |= written.attributes
        children = [_events_to_xml(pattern.script, pattern.events), logic, *written.children]
    else:
        children = [_xml_events(pattern), logic, _xml_output(pattern)]
    if pattern.time_fields:
        times = tuple(XmlElement("timefield", attributes={"source": source, "field": name}) for source, name in pattern.time_fields)
        children.append(XmlElement("timefields", children=times))
    if pattern.partition:
        attributes["index"] = ",".join(pattern.partition)
    if pattern.after_match is not AfterMatch.KEEP:
        attributes[PATTERN_AFTER_MATCH] = pattern.after_match.value
    if pattern.activity is Activity.INACTIVE:
        attributes["active"] = "false"
    return XmlElement("pattern", "", attributes, tuple(children))


def _xml_events(pattern: WindowPattern) -> XmlElement:
    events = []
    for event in pattern.events:
        attributes = {"name": event.name, "source": event.source}
        if event.condition is not None:
            events.append(expression("event", event.condition, **attributes))
        else:
            events.append(XmlElement("event", "", attributes))
    return XmlElement("events", children=tuple(events))


def _xml_output(pattern: WindowPattern) -> XmlElement:
    outputs = [
        expression("field-expr", output.expression, node=output.event)
        if output.expression is not None
        else XmlElement("field-selection", attributes={"name": output.field_name, "node": output.event})
        for output in pattern.outputs
    ]
    return XmlElement("output", children=tuple(outputs))


def _script_from_yaml(values: YamlValues, node: MappingNode) -> Script | None:
    if "code" not in node.values and "code-file" not in node.values:
        for key in _SCRIPT_KEYS:
            if key in node.values:
                values.found.add(node.places[key], f"{key} of a pattern needs code", "leave it out, or add code")
        return None
    language = values.option(node, "language", LANGUAGES, "language:", Language.LUA)
    return scripts.script_from_yaml(values, node, language, values.text(node, _OUTPUT).strip() or _OUTPUT)


def _script_to_yaml(script: Script) -> Written:
    language: Written = {} if script.language is Language.LUA else {"language": script.language.value}
    output: Written = {} if script.function == _OUTPUT else {_OUTPUT: script.function}
    return {**language, **output, **scripts.script_to_yaml(script)}


def _script_from_xml(values: EspValues, element: Any) -> Script | None:
    """Returns the script in the pattern's `element`; None if it has no events in code, or after a mistake, which is reported."""
    languages = [language for tag, language in _EVENT_ELEMENTS.items() if values.tree.children(element, tag)]
    codes = values.tree.children(element, "code")
    if not languages:
        scripts.refuse_without_code(values, element, ())
        return None
    place = values.tree.place(element)
    if len(languages) > 1:
        values.found.add(place, "a pattern has events of interest in two languages", "write two patterns")
    for tag in ("events", _OUTPUT):
        if values.tree.children(element, tag):
            values.found.add(place, f"<pattern> has <{tag}> together with events of interest in code", "leave one of them out")
    function = values.attribute(codes[0], _OUTPUT) if codes else ""
    return scripts.script_from_xml(values, element, languages[0], function or _OUTPUT)


def _script_to_xml(script: Script) -> XmlElement:
    """Returns a script as attributes and children for the pattern's element, in an element without a name."""
    written = scripts.script_to_xml(script)
    children = [XmlElement(each.tag, each.text, {_OUTPUT: script.function}, each.children) for each in written.children]
    return XmlElement("", attributes=written.attributes, children=tuple(children))


def _events_from_xml(values: EspValues, element: Any) -> list[EventOfInterest]:
    """Returns the events of interest of a pattern with code. If an event names no source and the window has one input, that input
    is the source.
    """
    events = []
    for tag in _EVENT_ELEMENTS:
        for each in values.elements_at(element, f"{tag}/event"):
            condition = values.expression(each)
            source = values.attribute(each, "source") or _only_source(element)
            name, function = values.attribute(each, "name"), values.attribute(each, "func")
            events.append(EventOfInterest(name, source, condition if condition.text else None, function, values.tree.place(each)))
    return events


def _events_to_xml(script: Script, events: Sequence[EventOfInterest]) -> XmlElement:
    tag = next(tag for tag, language in _EVENT_ELEMENTS.items() if language is script.language)
    listed = [XmlElement("event", attributes={"name": e.name, "source": e.source, "func": e.function}) for e in events]
    return XmlElement(tag, children=tuple(listed))


def _only_source(pattern: Any) -> str:
    """Returns the one input of the pattern's window, by the edges of its query; "" if the window has several inputs or none."""
    window = pattern.getparent().getparent()
    query = next((each for each in window.iterancestors() if each.tag == "contquery"), None)
    edges = query.iterfind("edges/edge") if query is not None else ()
    targets = [edge for edge in edges if window.get("name") in (edge.get("target") or "").split()]
    sources = dict.fromkeys(name for edge in targets for name in (edge.get("source") or "").split())
    return next(iter(sources)) if len(sources) == 1 else ""
