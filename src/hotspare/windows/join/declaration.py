"""Join window: rows of a left and a right input that agree in the fields of its conditions (SPEC A27).

A side is a dimension if the conditions name its whole key: each row of the other side, the facts, then meets at most one row. The
key of a joined row follows from that:

    conditions name the whole key of     inner          leftouter    rightouter    fullouter
    the right side                       left key       left key     -             -
    the left side                        right key      -            right key     -
    both                                 left key       left key     right key     their key, if they name nothing else
    neither (many to many)               both keys      -            -             -
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from hotspare.model.frontends.esp_xml.elements import DIALECT, FALSE, ElementShape, shape, window_shape
from hotspare.model.frontends.esp_xml.values import EspValues
from hotspare.model.frontends.esp_xml.xml_writer import XmlElement, initialization
from hotspare.model.frontends.values import INDEX_TYPES, TYPE_ALIASES, field_type, parse_option
from hotspare.model.frontends.yaml.tree import MappingNode
from hotspare.model.frontends.yaml.values import YamlValues
from hotspare.model.frontends.yaml.yaml_writer import Written, YamlWriter
from hotspare.model.meanings import expression_meaning, initialization_meaning
from hotspare.model.mistakes import Mistakes
from hotspare.model.names import nearest_names_hint, repeated
from hotspare.model.project import NO_INITIALIZATION, Expression, IndexType, Initialization, Window
from hotspare.model.types import Field, KeyRole, Schema
from hotspare.model.window_rules import check_derived_schema, check_expression, check_initialization, check_keeps_nothing
from hotspare.model.window_type import CarriedFields, Inputs, Newness, SchemaOrigin, WindowExpression, WindowInput, WindowType
from hotspare.windows.join.outputs import (
    EVERY,
    LEFT,
    PREFIXES,
    RIGHT,
    SELECTS,
    WHOLE_SIDES,
    Output,
    SideFields,
    output_xml,
    selection,
    selection_text,
    xml_outputs,
)


class JoinKind(Enum):
    INNER = "inner"
    LEFT_OUTER = "leftouter"
    RIGHT_OUTER = "rightouter"
    FULL_OUTER = "fullouter"

    @property
    def emits_unmatched(self) -> tuple[bool, bool]:
        """Whether rows of the left, and of the right side, that meet no row are emitted."""
        return self in (JoinKind.LEFT_OUTER, JoinKind.FULL_OUTER), self in (JoinKind.RIGHT_OUTER, JoinKind.FULL_OUTER)


class Regeneration(Enum):
    """Whether joined rows are updated when rows of the other side change later."""

    ALWAYS = "always"
    NEVER = "never"
    """A fact is joined once, when it is inserted or updated."""


class Streaming(Enum):
    """The side whose rows are not kept, if one: its rows are joined once, as with `Regeneration.NEVER`."""

    NEITHER = "neither"
    LEFT = "left"
    RIGHT = "right"


class Identity(Enum):
    """The kind of key that a joined row has."""

    LEFT = "left key"
    RIGHT = "right key"
    BOTH = "both keys"
    SHARED = "shared key"


KINDS = {each.value: each for each in JoinKind}
REGENERATIONS = {each.value: each for each in Regeneration}
STREAMINGS = {each.value: each for each in Streaming}


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinWindow(Window):
    """A join window as declared. `conditions`: pairs of a left and a right field; rows meet if the two fields of each pair are
    equal.
    """

    kind: JoinKind
    conditions: tuple[tuple[str, str], ...]
    outputs: tuple[Output | SideFields, ...]
    regeneration: Regeneration = Regeneration.ALWAYS
    streaming: Streaming = Streaming.NEITHER
    initialization: Initialization = NO_INITIALIZATION

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return tuple(each.expression for each in self.outputs if isinstance(each, Output) and each.expression is not None)

    @property
    def joins_once(self) -> bool:
        return self.regeneration is Regeneration.NEVER or self.streaming is not Streaming.NEITHER


def sides(roles: Sequence[str]) -> tuple[int, int]:
    """Returns the numbers of the left and of the right input, by role; without roles, in the order of the edges."""
    return (1, 0) if roles[0] == "right" or roles[1] == "left" else (0, 1)


def identity(window: JoinWindow, left: Schema, right: Schema) -> Identity | None:
    """Returns the kind of key of the joined rows; None if they can have none, which `check` reports."""
    is_dimension = _dimensions(window, left, right)
    if window.kind is JoinKind.FULL_OUTER:
        paired = {(left.index[a], right.index[b]) for a, b in window.conditions}
        exact = all(is_dimension) and len(paired) == len(left.key_indexes) == len(right.key_indexes)
        return Identity.SHARED if exact and not window.joins_once else None
    if window.kind is JoinKind.LEFT_OUTER:
        return Identity.LEFT if is_dimension[RIGHT] and window.streaming is not Streaming.RIGHT else None
    if window.kind is JoinKind.RIGHT_OUTER:
        return Identity.RIGHT if is_dimension[LEFT] and window.streaming is not Streaming.LEFT else None
    if is_dimension[RIGHT] and window.streaming is not Streaming.RIGHT:
        return Identity.LEFT
    if is_dimension[LEFT] and window.streaming is not Streaming.LEFT:
        return Identity.RIGHT
    return None if window.joins_once else Identity.BOTH


def _dimensions(window: JoinWindow, left: Schema, right: Schema) -> tuple[bool, bool]:
    """Returns for the left side, and for the right side, whether the conditions name all of its key fields."""
    names = (
        {f.name for f in schema.fields if f.is_key} <= {pair[side] for pair in window.conditions}
        for side, schema in ((LEFT, left), (RIGHT, right))
    )
    in_left, in_right = names
    return in_left, in_right


def visible(left: Schema, right: Schema) -> Schema:
    """Returns the schema that expressions read: all fields of both sides, with the prefixes of their sides."""
    pairs = ((PREFIXES[LEFT], left), (PREFIXES[RIGHT], right))
    return Schema(tuple(Field(f"{prefix}{f.name}", f.type) for prefix, schema in pairs for f in schema.fields))


def key_sources(window: JoinWindow, left: Schema, right: Schema) -> dict[str, str]:
    """Returns the key fields of a valid window, each with the prefixed name of its source field. For a shared key the source is the
    left one. A right name that is already used is prefixed, repeatedly if needed, as after a join of the same stream.
    """
    found = identity(window, left, right)
    names = {f.name: f"l_{f.name}" for f in left.fields if f.is_key and found is not Identity.RIGHT}
    if found in (Identity.RIGHT, Identity.BOTH):
        for f in right.fields:
            if f.is_key:
                name = f.name
                while name in names:
                    name = f"r_{name}"
                names[name] = f"r_{f.name}"
    return names


def outputs_of(window: JoinWindow, left: Schema, right: Schema) -> tuple[Output, ...]:
    """Returns the non-key fields, in order; each selection is replaced by the fields that it selects, without those of the key."""
    of_key = set(key_sources(window, left, right).values())
    found: list[Output] = []
    for each in window.outputs:
        if isinstance(each, Output):
            found.append(each)
            continue
        names = each.names or [name for name in (left, right)[each.side].names if name not in each.excluded]
        sources = [(name, f"{PREFIXES[each.side]}{name}") for name in names]
        found += [Output(name, source) for name, source in sources if source not in of_key]
    return tuple(found)


class JoinType(WindowType[JoinWindow]):
    name = "join"
    declared = JoinWindow
    newness = Newness.KEYS
    is_time_bounded = True
    needs_rows = True
    inputs: ClassVar[Inputs] = Inputs(2, 2, frozenset({"", "left", "right"}), "a join reads exactly two: left and right")
    related_roles: ClassVar[frozenset[str]] = inputs.roles
    schema_origin: ClassVar[SchemaOrigin] = SchemaOrigin.INPUTS
    yaml_keys = ("kind", "conditions", "outputs", "regenerates", "streaming", "initialize")
    xml = window_shape("", "join output expr-initialize")
    xml_elements: ClassVar[Mapping[str, ElementShape]] = {
        "join": shape(
            "type no-regenerates left-index right-index",
            "conditions",
            idle={"use-secondary-index": "rows are found by the fields of the conditions if needed"},
            neutral={"no-regenerates": FALSE, "use-secondary-index": FALSE},
        ),
        "conditions": shape(children="fields"),
        "conditions/fields": shape("left right"),
        "output": shape(children="field-expr field-selection left-select right-select"),
        "left-select": shape("exclude"),
        "right-select": shape("exclude"),
        "field-expr": shape(f"name type {DIALECT}"),
        "field-selection": shape("name source"),
    }
    xml_texts = frozenset({"field-expr", *SELECTS})
    example = """
windows:
  orders: {type: source, opcodes: any, schema: "order*:string,customer:int64,amount:double"}
  events: {type: source, index: empty, opcodes: insert-only, keys: autogenerated, schema: "n*:int64,customer:int64"}
  customers: {type: source, opcodes: any, schema: "id*:int64,name:string"}
  cities: {type: source, opcodes: any, schema: "id*:int64,city:string"}
  known: {type: join, kind: fullouter, conditions: {id: id}, outputs: {name: l_name, city: r_city}}
  both: {type: join, kind: inner, conditions: {customer: id}, outputs: {x: l_amount, "y:double": 2 * l_amount, name: r_name}}
  right: {type: join, kind: rightouter, conditions: {id: customer}, outputs: {name: l_name, amount: r_amount}}
  once: {type: join, kind: leftouter, conditions: {customer: id}, outputs: {name: r_name}, regenerates: never}
  enriched: {type: join, kind: inner, index: empty, conditions: {customer: id}, outputs: {name: r_name}, streaming: left}
  pairs: {type: join, kind: inner, conditions: {customer: customer}, outputs: {amount: l_amount}}
  whole: {type: join, kind: inner, conditions: {id: id}, outputs: {"l_*": "* except id", "r_*": city}}
edges:
  - customers -> known as left
  - cities -> known as right
  - orders -> both as left
  - known -> both as right
  - known -> right as left
  - orders -> right as right
  - orders -> once as left
  - customers -> once as right
  - events -> enriched as left
  - customers -> enriched as right
  - orders -> pairs as left
  - events -> pairs as right
  - customers -> whole as left
  - cities -> whole as right
"""

    def schema(self, window: JoinWindow, given: Sequence[WindowInput]) -> Schema | None:
        left, right = _schemas(given)
        if left is None or right is None or not _conditions_hold(window, left, right) or identity(window, left, right) is None:
            return window.schema
        fields = visible(left, right)
        keys = [Field(n, fields.fields[fields.index[s]].type, KeyRole.KEY) for n, s in key_sources(window, left, right).items()]
        outputs = outputs_of(window, left, right)
        types = [fields.fields[fields.index[o.source]].type if o.source in fields.index else o.type for o in outputs]
        named = zip(outputs, types, strict=True)
        return Schema((*keys, *(Field(o.name, each) for o, each in named if each is not None)))

    def read_yaml(self, values: YamlValues, node: MappingNode, common: Mapping[str, Any]) -> JoinWindow:
        if "kind" not in node.values:
            values.found.add(node.place, f"join window {common['name']} has no kind", f"write one of: {', '.join(KINDS)}")
        outputs: list[Output | SideFields] = []
        for written, each in values.expressions(node, "outputs").items():
            if written in WHOLE_SIDES:
                outputs.append(selection(WHOLE_SIDES[written], each.text))
                continue
            name, colon, type_text = (part.strip() for part in written.partition(":"))
            if colon:
                type_ = field_type(type_text, name, each.place, values.found, TYPE_ALIASES)
                outputs.append(Output(name, "", type_, each))
            elif each.text.startswith(PREFIXES) and each.text.isidentifier():
                outputs.append(Output(name, each.text))
            else:
                outputs.append(Output(name, "", None, each))
                message = f"output {name} of window {common['name']} is not an l_field or r_field, so it needs a type"
                values.found.add(
                    each.place, message, f'write "{name}:double": {each.text}, or one field of a side, such as l_{name}'
                )
        return JoinWindow(
            **common,
            kind=values.option(node, "kind", KINDS, "kind of join:", JoinKind.INNER),
            conditions=values.pairs(node, "conditions"),
            outputs=tuple(outputs),
            regeneration=values.option(node, "regenerates", REGENERATIONS, "regenerates:", Regeneration.ALWAYS),
            streaming=values.option(node, "streaming", STREAMINGS, "streaming:", Streaming.NEITHER),
            initialization=values.initialization(node),
        )

    def write_yaml(self, window: JoinWindow, writer: YamlWriter) -> Written:
        outputs: Written = {}
        for o in window.outputs:
            if isinstance(o, SideFields):
                outputs[f"{PREFIXES[o.side]}{EVERY}"] = selection_text(o)
            elif o.expression is not None and o.type is not None:
                outputs[f"{o.name}:{o.type.value}"] = writer.expression(o.expression)
            else:
                outputs[o.name] = o.source
        own: Written = {"kind": window.kind.value, "conditions": dict(window.conditions), "outputs": outputs}
        if window.regeneration is Regeneration.NEVER:
            own["regenerates"] = window.regeneration.value
        if window.streaming is not Streaming.NEITHER:
            own["streaming"] = window.streaming.value
        return own | writer.initialization(window.initialization)

    def read_xml(self, values: EspValues, element: Any, common: Mapping[str, Any]) -> JoinWindow:
        joins = values.elements_at(element, "join")
        if len(joins) != 1:
            values.missing(element, "<join>" if not joins else "single <join>")
            return JoinWindow(**common, kind=JoinKind.INNER, conditions=(), outputs=())
        place, join = values.tree.place(joins[0]), joins[0]
        kind = parse_option(values.attribute(join, "type"), KINDS, "type of join:", place, values.found) or JoinKind.INNER
        pairs = [(values.attribute(e, "left"), values.attribute(e, "right")) for e in values.elements_at(join, "conditions/fields")]
        empty = [_is_empty(values, join, f"{side}-index") for side in ("left", "right")]
        if all(empty):
            values.found.add(place, f"window {common['name']} keeps neither side", "leave left-index or right-index out")
        return JoinWindow(
            **common,
            kind=kind,
            conditions=tuple(sorted(pairs)),
            outputs=tuple(xml_outputs(values, element)),
            regeneration=Regeneration.NEVER if values.truth(join, "no-regenerates") else Regeneration.ALWAYS,
            streaming=Streaming.LEFT if empty[LEFT] else Streaming.RIGHT if empty[RIGHT] else Streaming.NEITHER,
            initialization=values.initialization(element),
        )

    def write_xml(self, window: JoinWindow) -> XmlElement:
        join = {"type": window.kind.value}
        if window.regeneration is Regeneration.NEVER:
            join["no-regenerates"] = "true"
        if window.streaming is not Streaming.NEITHER:
            join[f"{window.streaming.value}-index"] = IndexType.EMPTY.value
        pairs = tuple(XmlElement("fields", attributes={"left": left, "right": right}) for left, right in window.conditions)
        outputs = tuple(map(output_xml, window.outputs))
        conditions = XmlElement("conditions", children=pairs)
        own = (XmlElement("join", "", join, (conditions,)), XmlElement("output", children=outputs))
        return XmlElement("", children=(*initialization(window.initialization), *own))

    def check(self, window: JoinWindow, given: Sequence[WindowInput], found: Mistakes) -> None:
        roles = [each.role for each in given]
        if not _has_both_sides(roles):
            if self.inputs.roles.issuperset(roles):  # another role is reported with its edge
                found.add(
                    window.place, f"window {window.name} has inputs with the roles {roles}", "one is left, the other one right"
                )
            return
        if not window.conditions:
            found.add(window.place, f"window {window.name} has no condition", "name a field of each side that are equal")
        if not window.outputs:
            found.add(window.place, f"window {window.name} has no output", "name at least one, such as name: l_name")
        check_initialization(window, window.initialization, found)
        check_keeps_nothing(window, window.initialization, window.expressions, found)
        for expression in window.expressions:
            check_expression(window, expression, found)
        left, right = _schemas(given)
        if left is None or right is None:
            return
        _check_fields(window, left, right, found)
        if not _conditions_hold(window, left, right):
            return
        if identity(window, left, right) is None:
            why, hint = _keyless(window, left, right)
            found.add(window.place, f"rows of window {window.name} have no key: {why}", hint)
            return
        made = self.schema(window, given)
        assert made is not None
        check_derived_schema(window, made, found)

    def meaning(self, window: JoinWindow, schema: Schema) -> dict[str, str]:
        text = {"kind": window.kind.value, "regenerates": window.regeneration.value, "streaming": window.streaming.value}
        text["conditions"] = ", ".join(f"{left} = {right}" for left, right in window.conditions)
        for o in window.outputs:
            if isinstance(o, SideFields):
                text[f"outputs of {PREFIXES[o.side]}"] = selection_text(o)
            else:
                text[f"output {o.name}"] = o.source if o.expression is None else expression_meaning(o.expression)
        return text | initialization_meaning(window.initialization)

    def window_expressions(self, window: JoinWindow) -> Iterator[WindowExpression]:
        for output in window.outputs:
            if isinstance(output, Output) and output.expression is not None:
                field = Field(output.name, output.type) if output.type is not None else None
                yield WindowExpression(output.expression, field, initialization=window.initialization)

    def visible(self, window: JoinWindow, given: Sequence[WindowInput]) -> Schema | None:
        left, right = _schemas(given)
        return None if left is None or right is None else visible(left, right)

    def carried_fields(self, window: JoinWindow, given: Sequence[WindowInput], keys: Sequence[frozenset[str]]) -> CarriedFields:
        """Returns the output fields that copy a partition field. Inner join: of either side. Left or right outer: of the side that
        is in every output. Full outer: the key fields that both sides share. Returns a refusal if no condition pairs partition
        fields of both sides."""
        at = sides([each.role for each in given])
        held = [keys[at[LEFT]], keys[at[RIGHT]]]
        if not any(left in held[LEFT] and right in held[RIGHT] for left, right in window.conditions):
            hint = "partition the sources of both sides by fields of one condition, and pass these fields on to here"
            return CarriedFields(refusal="no condition says that rows of both sides that meet are of one partition", hint=hint)
        left, right = _schemas(given)
        if left is None or right is None:
            return CarriedFields()
        may = [window.kind in (JoinKind.INNER, kind) for kind in (JoinKind.LEFT_OUTER, JoinKind.RIGHT_OUTER)]
        sources = {f"{PREFIXES[side]}{name}" for side in (LEFT, RIGHT) if may[side] for name in held[side]}
        shared = {f"l_{name}" for name in held[LEFT]} if window.kind is JoinKind.FULL_OUTER else set()
        of_key = {name for name, source in key_sources(window, left, right).items() if source in sources | shared}
        return CarriedFields(frozenset(of_key | {o.name for o in outputs_of(window, left, right) if o.source in sources}))


def _keyless(window: JoinWindow, left: Schema, right: Schema) -> tuple[str, str]:
    """Returns the reason why joined rows of this window have no key, and a hint."""
    if window.kind is JoinKind.FULL_OUTER:
        if window.joins_once:
            return "a full outer join cannot join once", "leave regenerates and streaming out, or use another kind of join"
        why = "a full outer join needs conditions that pair the keys of both sides, and nothing else"
        return why, "name all key fields of both sides and no others, or use another kind of join"
    named = _dimensions(window, left, right)
    for side, streams in ((LEFT, Streaming.LEFT), (RIGHT, Streaming.RIGHT)):
        if named[side] and window.streaming is streams:
            why = f"the conditions name the whole key of the {streams.value} side, so it is the dimension, which has to be kept"
            return why, "let the other side stream, or neither"
    hint = "let the conditions name the whole key of the side whose rows may be missing, or join inner"
    if window.kind is JoinKind.INNER:
        return "facts that are joined once need a dimension, whose whole key the conditions name", "name such a key, or join again"
    side_name = "right" if window.kind is JoinKind.LEFT_OUTER else "left"
    return f"a {window.kind.value} join needs conditions that name the whole key of the {side_name} side", hint


def _has_both_sides(roles: Sequence[str]) -> bool:
    return not any(roles) or sorted(roles) == ["left", "right"]


def _schemas(given: Sequence[WindowInput]) -> tuple[Schema | None, Schema | None]:
    """Returns the schemas of the left and of the right side; None for both if the edges do not identify them."""
    roles = [each.role for each in given]
    if not _has_both_sides(roles):
        return None, None
    left, right = sides(roles)
    return given[left].schema, given[right].schema


def _conditions_hold(window: JoinWindow, left: Schema, right: Schema) -> bool:
    """Whether the window has conditions, which name known fields, and none of them twice; only then a key follows from them."""
    known = all(a in left.index and b in right.index for a, b in window.conditions)
    once = not any(repeated(pair[side] for pair in window.conditions) for side in (LEFT, RIGHT))
    return known and once and bool(window.conditions)


def _check_fields(window: JoinWindow, left: Schema, right: Schema, found: Mistakes) -> None:
    for pair in window.conditions:
        for name, schema, side in zip(pair, (left, right), ("left", "right"), strict=True):
            if name not in schema.index:
                message = f"window {window.name} compares the unknown {side} field {name!r}"
                found.add(window.place, message, nearest_names_hint(name, schema.names))
        if pair[LEFT] in left.index and pair[RIGHT] in right.index:
            types = left.fields[left.index[pair[LEFT]]].type, right.fields[right.index[pair[RIGHT]]].type
            if types[LEFT] is not types[RIGHT]:
                message = f"window {window.name} compares {pair[LEFT]}, which is {types[LEFT].value}, with {pair[RIGHT]}, "
                found.add(window.place, f"{message}which is {types[RIGHT].value}", "compute one of them as the other's type before")
            elif types[LEFT].is_array:
                message = f"window {window.name} compares {pair[LEFT]} and {pair[RIGHT]}, which are {types[LEFT].value}"
                found.add(window.place, message, "compare fields of other types, such as one element, computed before")
    for number, side in enumerate(("left", "right")):
        for name in repeated(pair[number] for pair in window.conditions):
            message = f"window {window.name} compares the {side} field {name} twice"
            found.add(window.place, message, "filter one side before, or compute another field")
    known = visible(left, right)
    for selected in (each for each in window.outputs if isinstance(each, SideFields)):
        own = (left, right)[selected.side].names
        for name in dict.fromkeys(n for n in (*selected.names, *selected.excluded) if n not in own):
            message = f"window {window.name} selects the unknown {('left', 'right')[selected.side]} field {name!r}"
            found.add(window.place, message, nearest_names_hint(name, own))
    for output in window.outputs:
        if isinstance(output, Output) and output.expression is None and output.source not in known.index:
            message = f"output {output.name} of window {window.name} is the unknown field {output.source!r}"
            found.add(window.place, message, nearest_names_hint(output.source, known.names))


def _is_empty(values: EspValues, join: Any, name: str) -> bool:
    text = values.attribute(join, name)
    return bool(text) and parse_option(text, INDEX_TYPES, f"{name}:", values.tree.place(join), values.found) is IndexType.EMPTY
