"""Rules for connectors, and overriding their properties without editing the project (SPEC I2-I6)."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping

from hotspare.base.errors import MistakeKind, Place, RemedyKind, UsageError
from hotspare.model.connectors import (
    AS_IT_IS,
    BUS_KINDS,
    CONNECTOR_PROPERTIES,
    FALSE_TEXTS,
    MISSPELLED,
    NO_EFFECT,
    PROPERTY_VALUES,
    REFUSED_CLASSES,
    REFUSED_VALUES,
    REQUIRED,
    TOPIC_CLASS,
    Support,
    is_bus,
    property_class,
)
from hotspare.model.failover_rules import JUDGED, TOPIC_NAMES
from hotspare.model.mistakes import READ_AS_MEANT, REFUSED, UNKNOWN, WITHOUT_EFFECT, Mistakes
from hotspare.model.names import PROPERTY_NAME, did_you_mean, first_unprintable, nearest_names_hint, one_of, repeated
from hotspare.model.project import Connector, ConnectorDirection, Project, Window

CONNECTORS_MAX = 100
_CLASSES = sorted({*CONNECTOR_PROPERTIES} - {TOPIC_CLASS})
PROPERTY_VALUE_LENGTH_MAX = 65_536
CLASS_BINDING = "class"
"""The property name in a binding that replaces the class of a connector; the connector's own properties are dropped."""


def connector_from_properties(
    name: str,
    kind: str,
    direction: ConnectorDirection,
    properties: Mapping[str, str],
    place: Place,
    found: Mistakes,
) -> Connector:
    """Returns a connector. Property names and date formats that public projects misspell are corrected, each with a warning
    (SPEC Z27)."""
    mended: dict[str, str] = {}
    for written, value in properties.items():
        name_meant = MISSPELLED.get(written, written)
        if name_meant != written:
            message, meant = f"connector {name} has the property {written!r}, read as {name_meant}", _meant(written)
            found.warn(place, message, f"write {name_meant}", meant)
        if name_meant == "dateformat" and value.startswith(("'", '"')) and not value.endswith(value[0]):
            message, value = f"connector {name} has a dateformat that begins with a stray quote", value[1:]
            found.warn(place, message, f"write {value}", _meant("dateformat"))
        mended.setdefault(name_meant, value)
    return Connector(name, kind, direction, tuple(sorted(mended.items())), place)


def _meant(name: str) -> MistakeKind:
    return MistakeKind(READ_AS_MEANT, (f"property {name}",))


def check_connectors(window: Window, may: Collection[ConnectorDirection], found: Mistakes) -> None:
    """Adds a mistake to `found` for each invalid connector of a window: too many, a name that is repeated or invalid, a publisher
    into a window that is not a source, a wrong property. `may`: the directions that the window's type allows."""
    if len(window.connectors) > CONNECTORS_MAX:
        found.add(
            window.place,
            f"window {window.name} has {len(window.connectors)} connectors; the limit is {CONNECTORS_MAX}",
            "use several windows",
        )
    for name in repeated(c.name for c in window.connectors):
        found.add(window.place, f"window {window.name} has two connectors {name}", "give one of them another name")
    for connector in window.connectors:
        if not PROPERTY_NAME.fullmatch(connector.name):
            hint = "use letters, digits, '_', '-' and '.'"
            found.add(connector.place, f"connector name {connector.name!r} of window {window.name} cannot be used", hint)
        if connector.direction is ConnectorDirection.PUBLISH and connector.direction not in may:
            found.add(
                connector.place,
                f"connector {connector.name} publishes into window {window.name}, which is not a source",
                "publish into a source window, or let the connector subscribe",
            )
        check_properties(connector, found)


def check_properties(connector: Connector, found: Mistakes) -> None:
    """Adds mistakes and warnings about the class and the properties of one connector."""
    directions = CONNECTOR_PROPERTIES.get(property_class(connector))
    if connector.kind in REFUSED_CLASSES:
        message = f"connector class {connector.kind!r} does not exist yet: {REFUSED_CLASSES[connector.kind]}"
        hint = f"leave connector {connector.name} out, or bind its class to one of: fs, lua, python, timer"
        found.add(connector.place, message, hint, MistakeKind(REFUSED, (f"connector class {connector.kind}",)))
        return
    if directions is None:
        hint = did_you_mean(connector.kind, _CLASSES) or one_of(_CLASSES)
        kind = MistakeKind(UNKNOWN, (f"connector class {connector.kind}",), RemedyKind.MISSING)
        found.add(connector.place, f"connector class {connector.kind!r} does not exist yet", hint, kind)
        return
    table = directions.get(connector.direction)
    if table is None:
        ways = " or ".join(each.name.lower() for each in directions)
        found.add(connector.place, f"connectors of class {connector.kind!r} only {ways}", f"write {ways}")
        return
    _warn_of_idle(connector, table, found)
    for name in REQUIRED.get(connector.kind, ()):
        if not connector.get(name):
            hint = f"give it {name}, or bind it where the project is run: --bind {connector.name}:{name}=..."
            found.warn(connector.place, f"connector {connector.name} has no {name}, which it needs to start", hint)
    for name, value in connector.properties:
        if name == "type":
            found.add(connector.place, f"connector {connector.name} has a property type", "write its direction instead")
            continue
        if not PROPERTY_NAME.fullmatch(name):
            found.add(
                connector.place,
                f"property name {name!r} of connector {connector.name} cannot be used",
                "use letters, digits, '_', '-' and '.'",
            )
        support = table.get(name)
        if support is None:
            hint = nearest_names_hint(name, table)
            message, kind = f"connector {connector.name} has the unknown property {name!r}, which has no effect", _idle([name])
            found.warn(connector.place, message, hint, kind)
        elif support is Support.MISSING and value.strip().lower() not in FALSE_TEXTS:
            kind = MistakeKind(UNKNOWN, (f"property {name} of {connector.kind} connectors",), RemedyKind.MISSING)
            found.add(
                connector.place, f"property {name} of connector {connector.name} is not implemented yet", "leave it out", kind
            )
        elif not _is_known(connector, name, value.strip().lower()) and "@" not in value:
            what = f"{name} {value!r} of connector {connector.name}"
            reason, known = REFUSED_VALUES.get((name, value.strip().lower())), one_of(sorted(PROPERTY_VALUES[name]))
            found.add(connector.place, f"{what} cannot be used" if reason else f"{what} is not implemented yet", reason or known)
        if odd := first_unprintable(value):
            found.add(
                connector.place,
                f"property {name} of connector {connector.name} contains the character {odd!r}",
                "remove the character",
            )
        if len(value) > PROPERTY_VALUE_LENGTH_MAX:
            found.add(
                connector.place,
                f"property {name} of connector {connector.name} is longer than {PROPERTY_VALUE_LENGTH_MAX}",
                "shorten it",
            )


def _is_known(connector: Connector, name: str, value: str) -> bool:
    """Whether the property `name` may have `value` (in lower case); a property without listed values may have any. For `kafkatype`
    of an external topic any value passes: it may name a field, and the adapter checks it later.
    """
    is_field = name == "kafkatype" and property_class(connector) == TOPIC_CLASS
    return is_field or value in PROPERTY_VALUES.get(name, {value})


def _warn_of_idle(connector: Connector, table: Mapping[str, Support], found: Mistakes) -> None:
    """Adds one warning that names every property without effect, with the reason. A property whose value requests nothing is
    left out."""
    idle: dict[str, str] = {}
    for name, value in connector.properties:
        is_judged = connector.kind in BUS_KINDS and name in JUDGED
        is_judged = is_judged or (name in TOPIC_NAMES and is_bus(connector) and all(map(connector.get, TOPIC_NAMES)))
        asks = value.strip().lower() not in AS_IT_IS.get(name, FALSE_TEXTS)
        if table.get(name) is Support.NO_EFFECT and asks and not is_judged:
            idle[name] = f"{name} ({NO_EFFECT[name]})"
    if idle:
        message = f"connector {connector.name} has properties without effect: {', '.join(idle.values())}"
        found.warn(connector.place, message, "leave them out, or see the reasons", _idle(idle))


def _idle(names: Iterable[str]) -> MistakeKind:
    return MistakeKind(WITHOUT_EFFECT, tuple(f"property {name}" for name in names))


def rebind(project: Project, bindings: Mapping[str, Mapping[str, str]]) -> Project:
    """Returns the project with connector properties overridden.

    A key is `query/window/connector`, `query/window` (all its connectors) or the name of a connector (in any window); the longer
    form has precedence. The property `class` replaces the class and drops the properties that the project defines. Raises
    UsageError for a key that names no connector.
    """
    known = {key for query, window, connector in _connectors(project) for key in _keys(query, window, connector)}
    for key in bindings:
        if key not in known:
            hint = did_you_mean(key, known) or (one_of(sorted(known)) if known else "the project has no connector")
            raise UsageError(f"no connector is called {key!r}", hint=hint)
    queries = tuple(
        dataclasses.replace(
            query,
            windows=tuple(
                dataclasses.replace(w, connectors=tuple(_bound(query.name, w.name, c, bindings) for c in w.connectors))
                for w in query.windows
            ),
        )
        for query in project.queries
    )
    return dataclasses.replace(project, queries=queries)


def _connectors(project: Project) -> Iterator[tuple[str, str, str]]:
    for query in project.queries:
        for window in query.windows:
            for connector in window.connectors:
                yield query.name, window.name, connector.name


def _keys(query: str, window: str, connector: str) -> tuple[str, str, str]:
    """Returns the binding keys of a connector, from the least to the most specific."""
    return connector, f"{query}/{window}", f"{query}/{window}/{connector}"


def _bound(query: str, window: str, connector: Connector, bindings: Mapping[str, Mapping[str, str]]) -> Connector:
    given: dict[str, str] = {}
    for key in _keys(query, window, connector.name):
        given.update(bindings.get(key, {}))
    kind = given.pop(CLASS_BINDING, connector.kind)
    kept = dict(connector.properties) if kind == connector.kind else {}
    return dataclasses.replace(connector, kind=kind, properties=tuple(sorted({**kept, **given}.items())))
