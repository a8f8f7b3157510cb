"""The contract of a window type with the model: its fields and rules, its YAML and XML, and the facts that follow from them.

A type is a folder of `hotspare.windows`. Its `declaration.py` has a frozen dataclass of the options that projects write, and a
`WindowType` with their meaning; `operator.py` has the operator. `hotspare.windows.registry` lists the types; the model names none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import Any, ClassVar, Generic, TypeVar

from hotspare.model.code import Script
from hotspare.model.frontends.esp_xml.elements import ElementShape
from hotspare.model.frontends.esp_xml.values import EspValues
from hotspare.model.frontends.esp_xml.xml_writer import XmlElement
from hotspare.model.frontends.yaml.tree import MappingNode
from hotspare.model.frontends.yaml.values import YamlValues
from hotspare.model.frontends.yaml.yaml_writer import Written, YamlWriter
from hotspare.model.function_contexts import FunctionProgram
from hotspare.model.mistakes import Mistakes
from hotspare.model.project import NO_INITIALIZATION, ConnectorDirection, Expression, Initialization, Window, WindowId
from hotspare.model.row_defaults import RowDefaults
from hotspare.model.statedb import RecordKeeping, RecordQuery
from hotspare.model.types import Field, Schema

W = TypeVar("W", bound=Window)

INPUT_ROLES: frozenset[str] = frozenset({"", "data"})
"""The roles of edges into windows that treat all inputs alike (A35)."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The allowed number and roles of the edges that lead into a window of the type. `most` None: any number. `hint`: the hint of
    the mistake about another number.
    """

    least: int = 1
    most: int | None = 1
    roles: frozenset[str] = INPUT_ROLES
    hint: str = "a window of this type reads exactly one"


NO_INPUT = Inputs(0, 0, hint="sources get their events from connectors")
ONE_INPUT = Inputs()


@dataclass(frozen=True, slots=True)
class WindowInput:
    """An input of a window: the source's schema and name, and the edge's role. `schema` is None if mistakes elsewhere make it
    unknown."""

    schema: Schema | None
    role: str = ""
    name: str = ""


class SchemaOrigin(Enum):
    WRITTEN = "written"
    """The project writes the schema."""
    INPUTS = "inputs"
    """The schema follows from the inputs; a project may also write it."""


class RowOrigin(Enum):
    """The origin of a window's rows."""

    EDGES = "edges"
    """The rows are the events of the window's inputs; for a window without inputs, the events of its topic."""
    ANSWERS = "answers"
    """The rows are the events of the window's topic: answers to the outputs of its inputs. The outputs of the inputs are published
    for this purpose, and the window's operator does not read them.
    """


class StreamNeed(Enum):
    """Whether the outputs of a window are an output stream."""

    AS_SAID = "as said"
    """The window's `Publication` decides."""
    ALWAYS = "always"
    """The outputs are a stream unless the project hides them, because an external reader reads them there."""


class ExpressionUse(Enum):
    """The purpose of an expression."""

    VALUE = "value"
    CONDITION = "condition"
    AGGREGATE = "aggregate"
    """The expression computes a value from the rows of a group."""


class Newness(Enum):
    """The rows of a window of the type that `emit: new` emits (docs/alerts.md)."""

    NONE = "none"
    """A project may not request `emit: new` for the type."""
    KEYS = "keys"
    """A row for each key that enters the results because of a new event."""
    EVENTS = "events"
    """A row for each new event of a group, with the group's values at that time."""


class Counting(Enum):
    """Whether an expression of a window may use functions that count events."""

    REFUSED = "refused"
    POSITION = "position"
    """The expression may use only guid() and random(), which are computed from the number of an event."""
    ALLOWED = "allowed"


@dataclass(frozen=True, slots=True)
class WindowExpression:
    """An expression of a window. `field`: the field that receives its value, None if unknown. `use`: its purpose; `counting`:
    whether it may count events; `initialization`: the code whose variables and functions it may use.
    """

    expression: Expression
    field: Field | None = None
    use: ExpressionUse = ExpressionUse.VALUE
    counting: Counting = Counting.REFUSED
    initialization: Initialization = NO_INITIALIZATION
    groups: tuple[str, ...] = ()
    """The fields that are equal in all rows of a group, for an aggregate."""


class HorizonMeasure(Enum):
    """The measure of how much of the past input determines a window's state."""

    TIME = "time"
    COUNT = "count"
    EVERYTHING = "everything"


@dataclass(frozen=True, slots=True)
class StateHorizon:
    """A bound of the state that a window keeps. `extent`: microseconds if `measure` is TIME, events if it is COUNT, else 0.

    `what` ends a sentence that the window's name begins. `by_field`: the field that holds the time, "" for the time of the topics.
    `remedy`: the change to the project that bounds the state, "" if the state is bounded.
    """

    measure: HorizonMeasure
    extent: int
    what: str
    by_field: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class CarriedFields:
    """The fields of a window that hold the value by which its inputs are partitioned. If `refusal` is not empty, it is the reason
    why one partition alone does not determine the window's results; `hint` is the type's own advice, if any.
    """

    fields: frozenset[str] = field(default_factory=frozenset)
    refusal: str = ""
    hint: str = ""


class WindowType(ABC, Generic[W]):
    """A type of window, without state: one instance serves all windows of the type. In all methods, `given` is the window's inputs;
    their number is one that `inputs` allows, even if the project draws another number of edges.
    """

    name: ClassVar[str]
    """The name in YAML; in ESP XML the element is `window-NAME`."""
    declared: type[W]
    """The class of the type's windows, which is declared in the same module."""
    inputs: ClassVar[Inputs] = ONE_INPUT
    row_origin: ClassVar[RowOrigin] = RowOrigin.EDGES
    schema_origin: ClassVar[SchemaOrigin] = SchemaOrigin.WRITTEN
    stream_need: ClassVar[StreamNeed] = StreamNeed.AS_SAID
    connectors: ClassVar[frozenset[ConnectorDirection]] = frozenset({ConnectorDirection.SUBSCRIBE})
    """The directions that connectors of the window may have."""
    yaml_keys: ClassVar[tuple[str, ...]] = ()
    """The keys of the type in YAML, in addition to those of all windows."""
    is_order_dependent: ClassVar[bool] = False
    """Whether a window's outputs depend on the order in which events of its inputs arrive."""
    related_roles: ClassVar[frozenset[str]] = frozenset()
    """The roles of edges whose current rows a window relates to each other, with an index or without."""
    keeps_input: ClassVar[bool] = True
    """Whether a window's index, if any, stores rows of the input, or rows derived from them."""
    newness: ClassVar[Newness] = Newness.NONE
    needs_rows: ClassVar[bool] = False
    """Whether a window keeps rows even if its index is empty."""
    preserves_key: ClassVar[bool] = False
    """Whether a window's index, if any, has the key of the input, so that the input must not insert a key twice."""
    is_time_bounded: ClassVar[bool] = False
    """Whether a window's outputs are independent of all input older than its bound in time (`model.recent_input`)."""
    xml: ClassVar[ElementShape]
    xml_elements: ClassVar[Mapping[str, ElementShape]] = {}
    """The shapes of the elements that only windows of this type may have."""
    xml_texts: ClassVar[frozenset[str]] = frozenset()
    """The elements whose text is read."""
    example: ClassVar[str]
    """A query in YAML that shows every option; it warms up kernels, and the laws run it."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "declared" in vars(cls):
            cls.declared.declared_by = cls

    @abstractmethod
    def read_yaml(self, values: YamlValues, node: MappingNode, common: Mapping[str, Any]) -> W:
        """Returns the window. `common`: the constructor arguments that every window has. Adds a mistake for each invalid value and
        uses a substitute for it.
        """

    @abstractmethod
    def write_yaml(self, window: W, writer: YamlWriter) -> Written:
        """Returns the entries that only this type has; `read_yaml` builds an equal window from them."""

    @abstractmethod
    def read_xml(self, values: EspValues, element: Any, common: Mapping[str, Any]) -> W:
        """Returns the window, as `read_yaml` does."""

    @abstractmethod
    def write_xml(self, window: W) -> XmlElement:
        """Returns the attributes and children that only this type has."""

    @abstractmethod
    def check(self, window: W, given: Sequence[WindowInput], found: Mistakes) -> None:
        """Adds every mistake that can be found without compiling expressions, each with a hint. The caller has checked the window's
        schema before.
        """

    @abstractmethod
    def meaning(self, window: W, schema: Schema) -> dict[str, str]:
        """Returns the options that determine outputs, besides schema, index and inputs. The project's hash includes them, so their
        texts must never change.
        """

    def schema(self, window: W, given: Sequence[WindowInput]) -> Schema | None:
        """Returns the window's schema; None if it follows from inputs that are unknown."""
        return window.schema

    def window_expressions(self, window: W) -> Iterator[WindowExpression]:
        """Yields every expression of a window, also of an invalid one."""
        return iter(())

    def forwards(self, window: W) -> Iterator[WindowId]:
        """Yields the source windows to which the window forwards its outputs."""
        return iter(())

    def scripts(self, window: W) -> Iterator[Script]:
        """Yields every piece of user code of a window, also of an invalid one."""
        return iter(())

    def program(self, window: W) -> FunctionProgram | None:
        """Returns the program of a window whose expressions see each other's values, so that `window_expressions` is incomplete;
        else None.
        """
        return None

    def visible(self, window: W, given: Sequence[WindowInput]) -> Schema | None:
        """Returns the fields that expressions may use; None if unknown."""
        return given[0].schema if given else None

    def state_horizons(self, window: W) -> Iterator[StateHorizon]:
        """Yields the bounds of the state that a window keeps in addition to rows."""
        return iter(())

    def row_horizons(self, window: W) -> Iterator[StateHorizon]:
        """Yields the bounds of a window's rows; none if it keeps rows exactly as long as its inputs do. The first one defines the
        bound.
        """
        return iter(())

    def event_time_fields(self, window: W, given: Sequence[WindowInput]) -> Mapping[str, str]:
        """Returns the field with the time of events, by name of the input; empty if the window uses system time."""
        return {}

    def idle_us(self, window: W) -> int:
        """Returns how long after the newest event of a source its event time advances by itself, in microseconds; 0 if
        it does not.
        """
        return 0

    def partition_by(self, window: W) -> str:
        """Returns the field by which the project partitions the events of a source window; "" if it names none."""
        return ""

    def required(self, window: W) -> tuple[str, ...]:
        """Returns the fields that may not be null in events of a source window."""
        return ()

    def reads(self, window: W) -> str:
        """Returns the stream of another project that a source window reads, `project/query/window`; "" if there is none."""
        return ""

    def row_defaults(self, window: W) -> RowDefaults:
        """Returns the opcode and key origin for rows of a file that state none."""
        return RowDefaults()

    def record_keeping(self, window: W, schema: Schema) -> RecordKeeping | None:
        """Returns where an external database stores the window's outputs; None if it does not. The reader of the window's stream
        writes them, each once and in order (`StreamNeed.ALWAYS`).
        """
        return None

    def record_query(self, window: W, schema: Schema) -> RecordQuery | None:
        """Returns the query whose answers are the window's events; None unless `row_origin` is ANSWERS."""
        return None

    @abstractmethod
    def carried_fields(self, window: W, given: Sequence[WindowInput], keys: Sequence[frozenset[str]]) -> CarriedFields:
        """Returns the window's fields that hold the partitioning value. `keys[i]`: the fields of input i that hold it."""


@cache
def _instance(declared_by: type[WindowType[Any]]) -> WindowType[Any]:
    return declared_by()


def type_of(window: Window) -> WindowType[Any]:
    """Returns the type of a window, found by its class."""
    return _instance(window.declared_by)
