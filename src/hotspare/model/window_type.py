"""The contract of a window type with the model: its fields and their rules, both its texts, and what follows from it.

A type is a folder of `hotspare.windows`. Its `declaration.py` has a frozen dataclass of what projects say, and a `WindowType` of
what that means; `operator.py` has what it does. `hotspare.windows.registry` lists the types, and the model names none.
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
from hotspare.model.frontends.esp_xml.written import Xml
from hotspare.model.frontends.yaml.tree import Entries
from hotspare.model.frontends.yaml.values import YamlValues
from hotspare.model.frontends.yaml.written import Written, YamlWriter
from hotspare.model.function_contexts import FunctionProgram
from hotspare.model.mistakes import Mistakes
from hotspare.model.project import NO_INITIALIZATION, ConnectorDirection, Expression, Initialization, Window, WindowId
from hotspare.model.row_defaults import RowDefaults
from hotspare.model.statedb import RecordKeeping, RecordQuery
from hotspare.model.types import Field, Schema

W = TypeVar("W", bound=Window)

INPUT_ROLES: frozenset[str] = frozenset({"", "data"})
"""Roles of edges into windows whose inputs are all alike (A35)."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """How many edges lead into a window of the type, and their roles. `most` None: any number. `hint` where there are others."""

    least: int = 1
    most: int | None = 1
    roles: frozenset[str] = INPUT_ROLES
    hint: str = "a window of this type reads exactly one"


NO_INPUT = Inputs(0, 0, hint="sources get their events from connectors")
ONE_INPUT = Inputs()


@dataclass(frozen=True, slots=True)
class Given:
    """An input, in the order of the edges: `schema` is None where it is not known, because of mistakes elsewhere."""

    schema: Schema | None
    role: str = ""
    name: str = ""


class SchemaOrigin(Enum):
    WRITTEN = "written"
    """A project says it."""
    INPUTS = "inputs"
    """It follows from the inputs; a project may say it too."""


class EntersBy(Enum):
    """What the rows of a window come from."""

    EDGES = "edges"
    """Its inputs; without any, the events of its topic."""
    ANSWERS = "answers"
    """The events of its topic: answers to what its inputs put out, which are published for that, and are no inputs of its
    operator."""


class StreamNeed(Enum):
    """Whether the outputs of a window are an output stream."""

    AS_SAID = "as said"
    """By the rule of `Publication`."""
    ALWAYS = "always"
    """Something outside takes them from there; unless they are hidden."""


class Use(Enum):
    """What an expression is for."""

    VALUE = "value"
    CONDITION = "condition"
    AGGREGATE = "aggregate"
    """A value that is computed from the rows of a group."""


class Newness(Enum):
    """The rows that `emit: new` emits of a window of the type (docs/alerts.md)."""

    NONE = "none"
    """It may not be said."""
    KEYS = "keys"
    """A row for each key that enters the results because of a new event."""
    EVENTS = "events"
    """A row for each new event of a group, with what the group is then."""


class Counting(Enum):
    """Whether what counts events may be used: only where a window counts."""

    REFUSED = "refused"
    POSITION = "position"
    """Only guid() and random(), which are drawn from the number of an event."""
    ALLOWED = "allowed"


@dataclass(frozen=True, slots=True)
class Computed:
    """An expression of a window; `field`: the one that gets its value, None where nobody knows."""

    expression: Expression
    field: Field | None = None
    use: Use = Use.VALUE
    counting: Counting = Counting.REFUSED
    initialization: Initialization = NO_INITIALIZATION
    groups: tuple[str, ...] = ()
    """Of an aggregate, the fields that are the same in all rows of a group."""


class Memory(Enum):
    """How far back the input goes that a window's state is made of."""

    TIME = "time"
    COUNT = "count"
    EVERYTHING = "everything"


@dataclass(frozen=True, slots=True)
class Remembered:
    """`extent` is microseconds for TIME, events for COUNT, else 0; `what` ends a sentence that the window begins. `by_field`: the
    field whose time it is, "" for the time of the topics. `remedy`: what to write so that it does not grow without bound, "" if
    it does not."""

    memory: Memory
    extent: int
    what: str
    by_field: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Carried:
    """The fields of a window that hold the value by which its inputs are partitioned; or, if `refusal` is not empty, why one
    partition alone does not determine what a window of the type does, and, if it has one of its own, the `hint`."""

    fields: frozenset[str] = field(default_factory=frozenset)
    refusal: str = ""
    hint: str = ""


class WindowType(ABC, Generic[W]):
    """Stateless: one instance serves all windows of the type. `given` is as long as the inputs say, whatever a project has."""

    name: ClassVar[str]
    """In YAML; in ESP XML the element is `window-NAME`."""
    declared: type[W]
    """The class of its windows, which is declared in the same module."""
    inputs: ClassVar[Inputs] = ONE_INPUT
    enters_by: ClassVar[EntersBy] = EntersBy.EDGES
    schema_origin: ClassVar[SchemaOrigin] = SchemaOrigin.WRITTEN
    streaming: ClassVar[StreamNeed] = StreamNeed.AS_SAID
    connectors: ClassVar[frozenset[ConnectorDirection]] = frozenset({ConnectorDirection.SUBSCRIBE})
    """What connectors of the window may do."""
    yaml_keys: ClassVar[tuple[str, ...]] = ()
    """Its own keys, beside those that all windows have."""
    goes_by_order: ClassVar[bool] = False
    """Whether what it puts out depends on the order in which events of its inputs come."""
    related_roles: ClassVar[frozenset[str]] = frozenset()
    """Roles of edges whose rows it relates as they are now, with an index or without."""
    keeps_input: ClassVar[bool] = True
    """Whether rows of its input, or what is made of them, are in its index if it has one; else its index is of other rows."""
    newness: ClassVar[Newness] = Newness.NONE
    needs_rows: ClassVar[bool] = False
    """Whether it keeps rows whatever its index is."""
    passes_key: ClassVar[bool] = False
    """Whether its index, if it has one, goes by the key of its input: then an input must not insert a key twice."""
    of_recent_input: ClassVar[bool] = False
    """Whether what it remembers beyond its bound in time shows in nothing that it puts out (`model.recent_input`)."""
    xml: ClassVar[ElementShape]
    xml_elements: ClassVar[Mapping[str, ElementShape]] = {}
    """Elements that mean something in windows of this type, beside those that all have."""
    xml_texts: ClassVar[frozenset[str]] = frozenset()
    """Elements whose text is read."""
    example: ClassVar[str]
    """YAML of a query that shows every option: what warms kernels up, and what the laws run."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "declared" in vars(cls):
            cls.declared.declared_by = cls

    @abstractmethod
    def read_yaml(self, values: YamlValues, node: Entries, common: Mapping[str, Any]) -> W:
        """`common`: the arguments that every window has. What cannot be read is a mistake, and something else in its place."""

    @abstractmethod
    def write_yaml(self, window: W, writer: YamlWriter) -> Written:
        """What only this type has; `read_yaml` makes an equal window of it."""

    @abstractmethod
    def read_xml(self, values: EspValues, element: Any, common: Mapping[str, Any]) -> W:
        """As `read_yaml`."""

    @abstractmethod
    def write_xml(self, window: W) -> Xml:
        """Attributes and children that only this type has."""

    @abstractmethod
    def check(self, window: W, given: Sequence[Given], found: Mistakes) -> None:
        """Add every mistake that shows without compiling expressions, each with a hint. The schema itself is checked before."""

    @abstractmethod
    def meaning(self, window: W, schema: Schema) -> dict[str, str]:
        """What determines outputs, beside schema, index and inputs; part of the project's hash: never to be said otherwise."""

    def schema(self, window: W, given: Sequence[Given]) -> Schema | None:
        """The window's schema; None where it follows from inputs that are not known."""
        return window.schema

    def computed(self, window: W) -> Iterator[Computed]:
        """Every expression, also of windows with mistakes."""
        return iter(())

    def forwards(self, window: W) -> Iterator[WindowId]:
        """Source windows that get what the window puts out."""
        return iter(())

    def scripts(self, window: W) -> Iterator[Script]:
        """Every piece of people's own code, also of windows with mistakes."""
        return iter(())

    def program(self, window: W) -> FunctionProgram | None:
        """What is computed, where expressions see each other's values: then `computed` does not say it all."""
        return None

    def visible(self, window: W, given: Sequence[Given]) -> Schema | None:
        """The fields that expressions may use; None where that is not known."""
        return given[0].schema if given else None

    def remembered(self, window: W) -> Iterator[Remembered]:
        """What it remembers beside rows."""
        return iter(())

    def forgets(self, window: W) -> Iterator[Remembered]:
        """How far back its rows go, where they do not stay as long as those of its inputs: the first tells the bound."""
        return iter(())

    def times(self, window: W, given: Sequence[Given]) -> Mapping[str, str]:
        """Returns the field with the time of events, by name of the input; nothing if the window goes by system time."""
        return {}

    def idle_us(self, window: W) -> int:
        """Returns how long after the newest event of a source event time goes on by itself; 0 if it does not."""
        return 0

    def partition_by(self, window: W) -> str:
        """Of events that enter here, the field by which the project says that they are partitioned; "" where it says nothing."""
        return ""

    def required(self, window: W) -> tuple[str, ...]:
        """Returns the fields that may not be null in events that enter here."""
        return ()

    def reads(self, window: W) -> str:
        """Of events that enter here, the stream of another project that they are outputs of; "" where there is none."""
        return ""

    def row_defaults(self, window: W) -> RowDefaults:
        """Returns what a row of a file is that states neither an opcode nor a key."""
        return RowDefaults()

    def keeps(self, window: W, schema: Schema) -> RecordKeeping | None:
        """Where its outputs are kept in a database of others, each once and in order, by what reads its stream
        (`StreamNeed.ALWAYS`); None where they are not."""
        return None

    def asks(self, window: W, schema: Schema) -> RecordQuery | None:
        """What its answers are answers to, where it enters by them."""
        return None

    @abstractmethod
    def carried(self, window: W, given: Sequence[Given], keys: Sequence[frozenset[str]]) -> Carried:
        """`keys[i]`: the fields of input i that hold the value by which it is partitioned."""


@cache
def _instance(declared_by: type[WindowType[Any]]) -> WindowType[Any]:
    return declared_by()


def type_of(window: Window) -> WindowType[Any]:
    """Returns the type of a window, by its class."""
    return _instance(window.declared_by)
