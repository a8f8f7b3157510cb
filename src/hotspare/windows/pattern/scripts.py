"""Reads and writes patterns whose events of interest are functions of people's own code, in both texts of a project (SPEC A30).

In ESP XML `<lua-events>` or `<python-events>` stand in place of `<events>`, and `<code output="...">` in place of `<output>`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hotspare.model import scripts
from hotspare.model.code import LANGUAGES, Language, Script
from hotspare.model.frontends.esp_xml.elements import ElementShape, shape
from hotspare.model.frontends.esp_xml.values import EspValues
from hotspare.model.frontends.esp_xml.written import Xml
from hotspare.model.frontends.yaml.tree import Entries
from hotspare.model.frontends.yaml.values import YamlValues
from hotspare.model.frontends.yaml.written import Written
from hotspare.windows.pattern.patterns import EventOfInterest

OUTPUT = "output"
"""The function that is called where a project names none."""
_OWN_KEYS = ("code", "code-file", "modules", "init", "transient", "steps-max", "state-bytes-max")
YAML_KEYS = ("language", OUTPUT, *_OWN_KEYS)
EVENT_ELEMENTS = {f"{language.value}-events": language for language in Language}
XML_CHILDREN = f"{' '.join(EVENT_ELEMENTS)} code"
XML_ELEMENTS: Mapping[str, ElementShape] = {
    **{tag: shape(children="event") for tag in EVENT_ELEMENTS},
    **{f"{tag}/event": shape("name source func") for tag in EVENT_ELEMENTS},
    "code": shape(OUTPUT),
    "use": scripts.XML_ELEMENTS["use"],
}
XML_TEXTS = frozenset({"code"})


def script_from_yaml(values: YamlValues, node: Entries) -> Script | None:
    if "code" not in node.values and "code-file" not in node.values:
        for key in YAML_KEYS:
            if key in node.values:
                values.found.add(node.places[key], f"{key} of a pattern needs code", "leave it out, or add code")
        return None
    language = values.option(node, "language", LANGUAGES, "language:", Language.LUA)
    return scripts.script_from_yaml(values, node, language, values.text(node, OUTPUT).strip() or OUTPUT)


def script_to_yaml(script: Script) -> Written:
    language: Written = {} if script.language is Language.LUA else {"language": script.language.value}
    output: Written = {} if script.function == OUTPUT else {OUTPUT: script.function}
    return {**language, **output, **scripts.script_to_yaml(script)}


def script_from_xml(values: EspValues, element: Any) -> Script | None:
    """`element`: that of the pattern."""
    languages = [language for tag, language in EVENT_ELEMENTS.items() if values.tree.children(element, tag)]
    codes = values.tree.children(element, "code")
    if not languages:
        scripts.refuse_without_code(values, element, ())
        return None
    place = values.tree.place(element)
    if len(languages) > 1:
        values.found.add(place, "a pattern has events of interest in two languages", "write two patterns")
    for tag in ("events", OUTPUT):
        if values.tree.children(element, tag):
            values.found.add(place, f"<pattern> has <{tag}> beside events of interest in code", "leave one of them out")
    function = values.attribute(codes[0], OUTPUT) if codes else ""
    return scripts.script_from_xml(values, element, languages[0], function or OUTPUT)


def events_from_xml(values: EspValues, element: Any) -> list[EventOfInterest]:
    """Of a pattern with code. The source of an event follows from the edges where the window has one input."""
    events = []
    for tag in EVENT_ELEMENTS:
        for each in values.listed(element, f"{tag}/event"):
            condition = values.expression(each)
            source = values.attribute(each, "source") or _only_source(element)
            name, function = values.attribute(each, "name"), values.attribute(each, "func")
            events.append(EventOfInterest(name, source, condition if condition.text else None, function, values.tree.place(each)))
    return events


def events_to_xml(script: Script, events: Sequence[EventOfInterest]) -> Xml:
    tag = next(tag for tag, language in EVENT_ELEMENTS.items() if language is script.language)
    listed = [Xml("event", attributes={"name": e.name, "source": e.source, "func": e.function}) for e in events]
    return Xml(tag, children=tuple(listed))


def script_to_xml(script: Script) -> Xml:
    """Attributes and children of the pattern."""
    written = scripts.script_to_xml(script)
    children = [Xml(each.tag, each.text, {OUTPUT: script.function}, each.children) for each in written.children]
    return Xml("", attributes=written.attributes, children=tuple(children))


def _only_source(pattern: Any) -> str:
    """The one input of the pattern's window as the edges of its query say; "" where there are several, or none."""
    window = pattern.getparent().getparent()
    query = next((each for each in window.iterancestors() if each.tag == "contquery"), None)
    edges = query.iterfind("edges/edge") if query is not None else ()
    targets = [edge for edge in edges if window.get("name") in (edge.get("target") or "").split()]
    sources = dict.fromkeys(name for edge in targets for name in (edge.get("source") or "").split())
    return next(iter(sources)) if len(sources) == 1 else ""
