"""The outputs of a join window: fields of a side, expressions, and selections of many fields, in YAML and XML (SPEC A27)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hotspare.model.frontends.esp_xml.values import EspValues
from hotspare.model.frontends.esp_xml.xml_writer import XmlElement, expression
from hotspare.model.frontends.values import field_type
from hotspare.model.project import Expression
from hotspare.model.types import FieldType

LEFT, RIGHT = 0, 1
PREFIXES = ("l_", "r_")
"""Prefixes of field names in expressions, for fields of the left and of the right side."""
SELECTS = {"left-select": LEFT, "right-select": RIGHT}
EVERY = "*"
EXCEPT = "except"


@dataclass(frozen=True, slots=True)
class Output:
    """A non-key field of a join: either the field of a side with the prefixed name `source`, or `expression`, of type `type`."""

    name: str
    source: str = ""
    type: FieldType | None = None
    expression: Expression | None = None


@dataclass(frozen=True, slots=True)
class SideFields:
    """A selection of fields of a side, under their own names: `names`; if that is empty, all but `excluded`. Fields of the joined
    row's key are always included.
    """

    side: int
    names: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()


WHOLE_SIDES = {f"{prefix}{EVERY}": side for side, prefix in enumerate(PREFIXES)}
"""Names in the outputs of YAML that select fields of a whole side, with the side: 0 is left."""


def selection(side: int, text: str) -> SideFields:
    """Parses a selection of fields of input `side` (0 is left): `a b`, `*`, or `* except a b`. Unknown fields are not refused."""
    names, _, excluded = text.partition(EXCEPT) if text.startswith(EVERY) else (text, "", "")
    return SideFields(side, () if names.strip() == EVERY else tuple(names.split()), tuple(excluded.split()))


def selection_text(selected: SideFields) -> str:
    if selected.names:
        return " ".join(selected.names)
    return " ".join((EVERY, EXCEPT, *selected.excluded)) if selected.excluded else EVERY


def output_xml(output: Output | SideFields) -> XmlElement:
    if isinstance(output, SideFields):
        tag = next(tag for tag, side in SELECTS.items() if side == output.side)
        excluded = {"exclude": ",".join(output.excluded)} if output.excluded else {}
        return XmlElement(tag, ",".join(output.names) or EVERY, excluded)
    if output.expression is not None and output.type is not None:
        return expression("field-expr", output.expression, name=output.name, type=output.type.value)
    return XmlElement("field-selection", attributes={"name": output.name, "source": output.source})


def _xml_selection(values: EspValues, child: Any) -> SideFields:
    """Parses a selection in XML: names between commas, without the excluded ones. No name, or a star, selects all others."""
    names, excluded = (
        tuple(name.strip() for name in text.split(",") if name.strip())
        for text in (values.tree.text(child), values.attribute(child, "exclude"))
    )
    if names in ((), (EVERY,)):
        return SideFields(SELECTS[child.tag], (), excluded)
    return SideFields(SELECTS[child.tag], tuple(name for name in names if name not in excluded))


def xml_outputs(values: EspValues, element: Any) -> Iterator[Output | SideFields]:
    wrapper = values.tree.only_child(element, "output")
    selected: set[str] = set()
    for child in wrapper if wrapper is not None else ():
        if child.tag not in ("field-expr", "field-selection", *SELECTS):
            continue
        values.tree.check(child)
        if child.tag in SELECTS:
            if child.tag in selected:
                values.found.add(values.tree.place(child), f"<output> has two elements <{child.tag}>", "name all fields in one")
            selected.add(child.tag)
            yield _xml_selection(values, child)
            continue
        name, place = values.attribute(child, "name"), values.tree.place(child)
        if child.tag == "field-selection":
            yield Output(name, values.attribute(child, "source"))
        else:
            type_ = field_type(values.attribute(child, "type"), name, place, values.found)
            yield Output(name, "", type_, values.expression(child))
