"""The contract of a window type with the model: its fields and their rules, both its texts, and what follows from it.

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
    """The number of edges that lead into a window of the type, and their roles. `most` None: any number. `hint`: for
    other counts.
    """

    least: int = 1
    most: int | None = 1
    roles: frozenset[str] = INPUT_ROLES
    hint: str = "a window of this type reads exactly one"


NO_INPUT = Inputs(0, 0, hint="sources get their events from connectors")
ONE_INPUT = Inputs()


@dataclass(frozen=True, slots=True)
class WindowInput:
    """An input, in the order of the edges. `schema` is None if it is unknown because of mistakes elsewhere."""

    schema: Schema | None
    role: str = ""
    name: str = ""


class SchemaOrigin(Enum):
    WRITTEN = "written"
    """The project defines it."""
    INPUTS = "inputs"
    """It follows from the inputs; a project may also write it."""


class RowOrigin(Enum):
    """The origin of a window's rows."""

    EDGES = "edges"
    """Its inputs; without any, the events of its topic."""
    ANSWERS = "answers"
    """The events of its topic: answers to the outputs of its inputs. Those are published for this purpose, and its operator does
    not read them.
    """


class StreamNeed(Enum):
    """Whether the outputs of a window are an output stream."""

    AS_SAID = "as said"
    """The window's `Publication` decides."""
    ALWAYS = "always"
    """They are, unless hidden, because an external reader takes them from there."""


class ExpressionUse(Enum):
    """The purpose of an expression."""

    VALUE = "value"
    CONDITION = "condition"
    AGGREGATE = "aggregate"
    """A value that is computed from the rows of a group."""


class Newness(Enum):
    """The rows that `emit: new` emits of a window of the type (docs/alerts.md)."""

    NONE = "none"
    """The project may not request it."""
    KEYS = "keys"
    """A row for each key that enters the results because of a new event."""
    EVENTS = "events"
    """A row for each new event of a group, with the group's values at that time."""


class Counting(Enum):
    """Whether an expression may use functions that count events; only windows that count allow it."""

    REFUSED = "refused"
    POSITION = "position"
    """Only guid() and random(), which are drawn from the number of an event."""
    ALLOWED = "allowed"


@dataclass(frozen=True, slots=True)
class WindowExpression:
    """An expression of a window. `field`: the one that gets its value, None if unknown."""

    expression: Expression
    field: Field | None = None
    use: ExpressionUse = ExpressionUse.VALUE
    counting: Counting = Counting.REFUSED
    initialization: Initialization = NO_INITIALIZATION
    groups: tuple[str, ...] = ()
    """The fields that are equal in all rows of a group, for an aggregate."""


class HorizonMeasure(Enum):
    """The measure of how far back the input goes that determines a window's state."""

    TIME = "time"
    COUNT = "count"
    EVERYTHING = "everything"


@dataclass(frozen=True, slots=True)
class StateHorizon:
    """A bound of the state that a window keeps.

    `extent` is microseconds for TIME, events for COUNT, else 0. `what` ends a sentence that the window's name begins. `by_field`:
    the field whose time counts, "" for the time of the topics. `remedy`: what to write so that it does not grow without bound, ""
    if it does not grow.
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
    """A type of window, without state: one instance serves all its windows. `given` has as many inputs as `inputs` allows, whatever
    a project has.
    """

    name: ClassVar[str]
    """The name in YAML; in ESP XML the element is `window-NAME`."""
    declared: type[W]
    """The class of its windows, which is declared in the same module."""
    inputs: ClassVar[Inputs] = ONE_INPUT
    row_origin: ClassVar[RowOrigin] = RowOrigin.EDGES
    schema_origin: ClassVar[SchemaOrigin] = SchemaOrigin.WRITTEN
    stream_need: ClassVar[StreamNeed] = StreamNeed.AS_SAID
    connectors: ClassVar[frozenset[ConnectorDirection]] = frozenset({ConnectorDirection.SUBSCRIBE})
    """The directions that connectors of the window may have."""
    yaml_keys: ClassVar[tuple[str, ...]] = ()
    """Its own keys, in addition to those that all windows have."""
    is_order_dependent: ClassVar[bool] = False
    """Whether its outputs depend on the order in which events of its inputs arrive."""
    related_roles: ClassVar[frozenset[str]] = frozenset()
    """The roles of edges whose current rows it relates, with an index or without."""
    keeps_input: ClassVar[bool] = True
    """Whether its index, if it has one, keeps rows of its input or rows derived from them; else the index has other rows."""
    newness: ClassVar[Newness] = Newness.NONE
    needs_rows: ClassVar[bool] = False
    """Whether it keeps rows with every kind of index."""
    preserves_key: ClassVar[bool] = False
    """Whether its index, if it has one, has the key of its input: then an input must not insert a key twice."""
    is_time_bounded: ClassVar[bool] = False
    """Whether its outputs do not depend on what it remembers beyond its bound in time (`model.recent_input`)."""
    xml: ClassVar[ElementShape]
    xml_elements: ClassVar[Mapping[str, ElementShape]] = {}
    """The elements that windows of this type add to those that all have."""
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
        """Returns the window; `common`: the arguments that every window has. Adds a mistake for what it cannot read, and
        substitutes a value.
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
        """Adds every mistake that shows without compiling expressions, each with a hint. The caller checks the schema itself
        before.
        """

    @abstractmethod
    def meaning(self, window: W, schema: Schema) -> dict[str, str]:
        """Returns what determines outputs, besides schema, index and inputs. It is hashed as part of the project: never change its
        words.
        """

    def schema(self, window: W, given: Sequence[WindowInput]) -> Schema | None:
        """Returns the window's schema; None if it follows from inputs that are unknown."""
        return window.schema

    def window_expressions(self, window: W) -> Iterator[WindowExpression]:
        """Yields every expression, also of invalid windows."""
        return iter(())

    def forwards(self, window: W) -> Iterator[WindowId]:
        """Yields the source windows to which the window forwards its outputs."""
        return iter(())

    def scripts(self, window: W) -> Iterator[Script]:
        """Yields every piece of user code, also of invalid windows."""
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
        """Yields the bounds of the state that it keeps in addition to rows."""
        return iter(())

    def row_horizons(self, window: W) -> Iterator[StateHorizon]:
        """Yields how far back its rows go, if it keeps them for another time than its inputs keep theirs; the first defines the
        bound.
        """
        return iter(())

    def event_time_fields(self, window: W, given: Sequence[WindowInput]) -> Mapping[str, str]:
        """Returns the field with the time of events, by name of the input; nothing if the window goes by system time."""
        return {}

    def idle_us(self, window: W) -> int:
        """Returns how long after the newest event of a source its event time advances by itself, in microseconds; 0 if
        it does not.
        """
        return 0

    def partition_by(self, window: W) -> str:
        """Returns the field by which the project partitions the events that enter here; "" if it names none."""
        return ""

    def required(self, window: W) -> tuple[str, ...]:
        """Returns the fields that may not be null in events that enter here."""
        return ()

    def reads(self, window: W) -> str:
        """Returns the stream of another project whose outputs enter here; "" if there is none."""
        return ""

    def row_defaults(self, window: W) -> RowDefaults:
        """Returns the opcode and key origin for rows of a file that state none."""
        return RowDefaults()

    def record_keeping(self, window: W, schema: Schema) -> RecordKeeping | None:
        """Returns the external database that keeps its outputs, each once and in order, written by the reader of its stream
        (`StreamNeed.ALWAYS`); None if there is none.
        """
        return None

    def record_query(self, window: W, schema: Schema) -> RecordQuery | None:
        """Returns the query that its answers belong to, if it enters by answers."""
        return None

    @abstractmethod
    def carried_fields(self, window: W, given: Sequence[WindowInput], keys: Sequence[frozenset[str]]) -> CarriedFields:
        """Returns which of its fields carry the partitioning value; `keys[i]`: the fields of input i that hold it."""


@cache
def _instance(declared_by: type[WindowType[Any]]) -> WindowType[Any]:
    return declared_by()


def type_of(window: Window) -> WindowType[Any]:
    """Returns the type of a window, found by its class."""
    return _instance(window.declared_by)
