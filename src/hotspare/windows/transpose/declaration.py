"""Transpose window: turns rows with one tag each into rows with columns for all tags, or the reverse (SPEC A32)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from hotspare.base.errors import Place
from hotspare.model.durations import format_duration
from hotspare.model.frontends.esp_xml.elements import window_shape
from hotspare.model.frontends.esp_xml.values import EspValues
from hotspare.model.frontends.esp_xml.xml_writer import XmlElement
from hotspare.model.frontends.values import parse_duration_or_default, parse_option
from hotspare.model.frontends.yaml.tree import MappingNode
from hotspare.model.frontends.yaml.values import YamlValues
from hotspare.model.frontends.yaml.yaml_writer import Written, YamlWriter
from hotspare.model.mistakes import Mistakes
from hotspare.model.names import nearest_names_hint, repeated
from hotspare.model.project import Window
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.model.window_rules import check_derived_schema
from hotspare.model.window_type import CarriedFields, HorizonMeasure, SchemaOrigin, StateHorizon, WindowInput, WindowType

NUMBER_FIELD = "tagNum"
"""Name of the key of rows of the long form, in addition to the key of their input: the number of the tag, from 0."""
NAMES_MAX = 62
NEVER = "never"


class Mode(Enum):
    WIDE = "wide"
    """The output has one row for each input row, with the newest values of all tags of its group."""
    LONG = "long"
    """The output has one row for each tag of an input row."""


MODES = {each.value: each for each in Mode}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransposeWindow(Window):
    """A transpose window as declared. `tag`: the field with the tag; `values`: the fields with the tag's values. The wide form has
    a field TAG_VALUE for each tag of `tags` and each value of `values`. `group_by` and `clear_timeout_us` (0: never) are for mode
    wide only.
    """

    mode: Mode
    tag: str
    tags: tuple[str, ...]
    values: tuple[str, ...]
    group_by: tuple[str, ...] = ()
    clear_timeout_us: int = 0

    @property
    def wide_names(self) -> tuple[str, ...]:
        """The names of the fields TAG_VALUE of the wide form, tag by tag."""
        return tuple(f"{tag}_{value}" for tag in self.tags for value in self.values)


class TransposeType(WindowType[TransposeWindow]):
    name = "transpose"
    declared = TransposeWindow
    schema_origin: ClassVar[SchemaOrigin] = SchemaOrigin.INPUTS
    yaml_keys = ("mode", "tag", "tags", "values", "group_by", "clear_timeout")
    xml = window_shape("mode tag-name tags-included tag-values group-by clear-timeout")
    example = """
windows:
  given: {type: source, opcodes: any, schema: "id*:int64,plane:string,tag:string,value:string,at:stamp"}
  stream: {type: source, index: empty, opcodes: insert-only, schema: "id*:int64,tag:string,x:double"}
  tagged: {type: compute, schema: "id*:int64,plane:string,tag:string,value:string,at:stamp",
           outputs: {plane: plane, tag: "concat('t', tag)", value: value, at: at}}
  wide: {type: transpose, mode: wide, tag: tag, tags: [t1, t2], values: [value, at], group_by: [plane], clear_timeout: 2 seconds}
  named: {type: compute, index: empty, schema: "id*:int64,tag:string,x:double", outputs: {tag: "concat('t', tag)", x: x}}
  all: {type: transpose, index: empty, mode: wide, tag: tag, tags: [t1], values: [x]}
  long: {type: transpose, mode: long, tag: tag, tags: [t1, t2], values: [value, at]}
edges: [given -> tagged -> wide -> long, stream -> named -> all]
"""

    def schema(self, window: TransposeWindow, given: Sequence[WindowInput]) -> Schema | None:
        schema = given[0].schema
        if schema is None:
            return window.schema
        gone = {window.tag, *window.values} if window.mode is Mode.WIDE else {*window.wide_names}
        passed = tuple(f for f in schema.fields if f.name not in gone)
        types = {f.name: f.type for f in schema.fields}
        if window.mode is Mode.WIDE:
            made = (Field(f"{t}_{v}", types.get(v, FieldType.STRING)) for t in window.tags for v in window.values)
            return Schema((*passed, *made))
        values = (Field(v, types.get(f"{t}_{v}", FieldType.STRING)) for t in window.tags[:1] for v in window.values)
        return Schema((*passed, Field(NUMBER_FIELD, FieldType.INT64, KeyRole.KEY), Field(window.tag, FieldType.STRING), *values))

    def read_yaml(self, values: YamlValues, node: MappingNode, common: Mapping[str, Any]) -> TransposeWindow:
        def names(key: str) -> tuple[str, ...]:
            return tuple(text.value for text in values.text_list(node.values.get(key), key))

        return TransposeWindow(
            **common,
            mode=values.option(node, "mode", MODES, "mode:", Mode.WIDE),
            tag=values.text(node, "tag").strip(),
            tags=names("tags"),
            values=names("values"),
            group_by=names("group_by"),
            clear_timeout_us=_timeout_us(
                values.text(node, "clear_timeout"), node.values.get("clear_timeout", node).place, values.found
            ),
        )

    def write_yaml(self, window: TransposeWindow, writer: YamlWriter) -> Written:
        own: Written = {"mode": window.mode.value, "tag": window.tag, "tags": list(window.tags), "values": list(window.values)}
        if window.group_by:
            own["group_by"] = list(window.group_by)
        if window.clear_timeout_us:
            own["clear_timeout"] = format_duration(window.clear_timeout_us)
        return own

    def read_xml(self, values: EspValues, element: Any, common: Mapping[str, Any]) -> TransposeWindow:
        def names(attribute: str) -> tuple[str, ...]:
            return tuple(name.strip() for name in values.attribute(element, attribute).split(",") if name.strip())

        written = values.attribute(element, "mode") or Mode.WIDE.value
        return TransposeWindow(
            **common,
            mode=parse_option(written, MODES, "mode:", common["place"], values.found) or Mode.WIDE,
            tag=values.attribute(element, "tag-name"),
            tags=names("tags-included"),
            values=names("tag-values"),
            group_by=names("group-by"),
            clear_timeout_us=_timeout_us(values.attribute(element, "clear-timeout"), common["place"], values.found),
        )

    def write_xml(self, window: TransposeWindow) -> XmlElement:
        own = {
            "mode": window.mode.value,
            "tag-name": window.tag,
            "tags-included": ",".join(window.tags),
            "tag-values": ",".join(window.values),
        }
        if window.group_by:
            own["group-by"] = ",".join(window.group_by)
        if window.clear_timeout_us:
            own["clear-timeout"] = format_duration(window.clear_timeout_us)
        return XmlElement("", attributes=own)

    def check(self, window: TransposeWindow, given: Sequence[WindowInput], found: Mistakes) -> None:
        _check_options(window, found)
        schema = given[0].schema
        if schema is None or not (window.tag and window.tags and window.values):
            return
        before = len(found.mistakes)
        if window.mode is Mode.WIDE:
            _check_wide(window, schema, found)
        else:
            _check_long(window, schema, found)
        made = self.schema(window, given)
        if made is not None and len(found.mistakes) == before:
            check_derived_schema(window, made, found)

    def meaning(self, window: TransposeWindow, schema: Schema) -> dict[str, str]:
        return {
            "mode": window.mode.value,
            "tag": window.tag,
            "tags": ", ".join(window.tags),
            "values": ", ".join(window.values),
            "group by": ", ".join(window.group_by),
            "clear timeout": format_duration(window.clear_timeout_us) if window.clear_timeout_us else NEVER,
        }

    def state_horizons(self, window: TransposeWindow) -> Iterator[StateHorizon]:
        what = "keeps the newest values of each group"
        if window.mode is Mode.WIDE and window.clear_timeout_us:
            yield StateHorizon(HorizonMeasure.TIME, window.clear_timeout_us, what)
        elif window.mode is Mode.WIDE:
            yield StateHorizon(HorizonMeasure.EVERYTHING, 0, what, remedy="give it clear_timeout: 1 hour")

    def carried_fields(
        self, window: TransposeWindow, given: Sequence[WindowInput], keys: Sequence[frozenset[str]]
    ) -> CarriedFields:
        """Returns the partition fields that the window copies to its output; a refusal (`CarriedFields.refusal`) for mode wide if
        no partition field is in `group_by`."""
        if window.mode is Mode.WIDE and not keys[0].intersection(window.group_by):
            hint = "group by the field by which its sources are partitioned"
            return CarriedFields(refusal="rows of one group may be of several partitions", hint=hint)
        gone = {window.tag, *window.values} if window.mode is Mode.WIDE else {*window.wide_names}
        return CarriedFields(keys[0] - gone)


def _timeout_us(text: str, place: Place, found: Mistakes) -> int:
    return 0 if text.strip().lower() == NEVER else parse_duration_or_default(text, "clear-timeout", 0, place, found)


def _check_options(window: TransposeWindow, found: Mistakes) -> None:
    """Reports mistakes in options that can be found without the input's schema."""
    wanted = {"tag field": window.tag, "tags": window.tags, "values": window.values}
    for what, value in wanted.items():
        if not value:
            found.add(window.place, f"window {window.name} has no {what}", "name the tag field, the tags and the values")
    for what, names in (("tag", window.tags), ("value", window.values), ("field to group by", window.group_by)):
        for name in repeated(names):
            found.add(window.place, f"window {window.name} names the {what} {name} twice", "leave one of them out")
    for tag in window.tags:
        if "," in tag or tag != tag.strip():
            found.add(window.place, f"the tag {tag!r} of window {window.name} cannot be part of a field name", "use another tag")
    for what, names in (("values for each tag", window.values), ("fields to group by", window.group_by)):
        if len(names) > NAMES_MAX:
            found.add(window.place, f"window {window.name} has {len(names)} {what}; the limit is {NAMES_MAX}", "use fewer")
    if window.mode is Mode.LONG and window.group_by:
        found.add(
            window.place, f"window {window.name} is long and has fields to group by", "leave them out: a long window keeps nothing"
        )
    if window.mode is Mode.LONG and window.clear_timeout_us:
        found.add(
            window.place, f"window {window.name} is long and has a clear timeout", "leave it out: a long window keeps nothing"
        )


def _check_wide(window: TransposeWindow, given: Schema, found: Mistakes) -> None:
    for name in (window.tag, *window.values, *window.group_by):
        if name not in given.index:
            found.add(window.place, f"window {window.name} uses the unknown field {name!r}", nearest_names_hint(name, given.names))
    for name in (window.tag, *window.values):
        if name in given.index and given.fields[given.index[name]].is_key:
            message = f"window {window.name} makes columns of the field {name}, which is a key of its input"
            found.add(window.place, message, "output rows have the keys of the input rows")
        if name in window.group_by:
            found.add(window.place, f"window {window.name} groups by the field {name}, of which it makes columns", "leave it out")
    if window.tag in given.index and given.fields[given.index[window.tag]].type is not FieldType.STRING:
        type_name = given.fields[given.index[window.tag]].type.value
        found.add(window.place, f"the tag field {window.tag} of window {window.name} is {type_name}", "use a field of type string")
    if window.tag in window.values:
        found.add(window.place, f"window {window.name} has its tag field {window.tag} among the values", "leave it out")


def _check_long(window: TransposeWindow, given: Schema, found: Mistakes) -> None:
    for name in window.wide_names:
        if name not in given.index:
            found.add(window.place, f"window {window.name} looks for the field {name!r}", nearest_names_hint(name, given.names))
        elif given.fields[given.index[name]].is_key:
            found.add(window.place, f"window {window.name} makes rows of the field {name}, which is a key", "pass the key on")
    for value in window.values:
        types = {given.fields[given.index[n]].type.value for n in (f"{t}_{value}" for t in window.tags) if n in given.index}
        if len(types) > 1:
            message = f"the fields of the value {value} of window {window.name} are of several types: {', '.join(sorted(types))}"
            found.add(window.place, message, "convert them in a compute window before")
