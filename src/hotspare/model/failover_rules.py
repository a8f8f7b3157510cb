"""The meaning of the failover properties of SAS connectors, and their contradictions (SPEC B2, D14-D17, I2, I3, Z27).

A subscriber with hotfailover=true is precise; with hotfailover=false, which requests no failover, it is simple. A quality that the
window itself names applies if no property is set; a property with another value is an error.
"""

from __future__ import annotations

import re

from hotspare.base.errors import MistakeKind
from hotspare.model.connectors import BUS_KINDS, NO_EFFECT, is_bus
from hotspare.model.mistakes import WITHOUT_EFFECT, Mistakes
from hotspare.model.project import Connector, ConnectorDirection, Window
from hotspare.model.quality import PRECISE, SIMPLE, Quality, QualityKind

FAILOVER = "hotfailover"
JUDGED: frozenset[str] = frozenset(
    {FAILOVER, "snapshot", "numbufferedmsgs", "useoffsetmsgid", "zookeeperhostport", "collapse", "rmretdel"}
)
"""The properties of bus connectors whose values this module checks, each independently of the others."""
TOPIC_NAMES = ("kafkatopic", "urlhostport")
"""The properties that this module checks if a connector has both."""

_TRUTH = {"true": "true", "1": "true", "yes": "true", "false": "false", "0": "false", "no": "false", "": ""}
_NUMBER = re.compile(r"[0-9]{1,12}", re.ASCII)
_ONLY_WITH_FAILOVER = ("numbufferedmsgs", "zookeeperhostport")


def effective_quality(window: Window) -> Quality:
    """Returns the quality of the window's output stream: the one that the window names, else simple if all its subscribing bus
    connectors have hotfailover=false, else precise."""
    if window.quality is not None:
        return window.quality
    asked = {boolean_property(c, FAILOVER) for c in window.connectors if _is_subscriber(c)}
    return SIMPLE if asked == {"false"} else PRECISE


def check_failover(project: str, query: str, window: Window, found: Mistakes) -> None:
    for connector in window.connectors:
        if connector.kind in BUS_KINDS:
            _check_values(connector, found)
        if is_bus(connector):
            _check_topic(f"{project}.{query}.{window.name}", connector, found)
    subscribers = [c for c in window.connectors if _is_subscriber(c)]
    for connector in subscribers:
        _check_subscriber(connector, found)
        _check_against_quality(window, connector, found)
    asked = {answer: c for c in subscribers if (answer := boolean_property(c, FAILOVER))}
    if len(asked) > 1:
        names = f"connectors {asked['true'].name} and {asked['false'].name} of window {window.name}"
        found.add(asked["false"].place, f"{names} contradict each other in hotfailover", "give both the same value")
    if window.quality is None and asked.keys() == {"false"}:
        message = f"hotfailover=false makes the stream of window {window.name} simple: a failover may lose outputs"
        found.warn(asked["false"].place, message, "write hotfailover=true to lose none")


def _is_subscriber(connector: Connector) -> bool:
    return connector.kind in BUS_KINDS and connector.direction is ConnectorDirection.SUBSCRIBE


def boolean_property(connector: Connector, name: str) -> str:
    """Returns the value of a property: `"true"`, `"false"`, or "" if the property is absent or has another value."""
    return _TRUTH.get(connector.get(name).strip().lower(), "")


def _check_values(connector: Connector, found: Mistakes) -> None:
    for name in (FAILOVER, "snapshot", "useoffsetmsgid", "collapse", "rmretdel", "csvmsgpereventblock"):
        value = connector.get(name).strip().lower()
        if value not in _TRUTH and "@" not in value:
            message = f"property {name} of connector {connector.name} is {value[:40]!r}"
            found.add(connector.place, message, "write true or false")
    count = connector.get("numbufferedmsgs").strip()
    if count and not _NUMBER.fullmatch(count) and "@" not in count:
        message = f"property numbufferedmsgs of connector {connector.name} is {count[:40]!r}"
        found.add(connector.place, message, "write a number of messages, 0 or more")
    if boolean_property(connector, "useoffsetmsgid") == "false":
        message = f"useoffsetmsgid=false of connector {connector.name} has no effect: positions on the topic always are the ids"
        found.warn(connector.place, message, "leave useoffsetmsgid out")


def _check_subscriber(connector: Connector, found: Mistakes) -> None:
    failover, snapshot = boolean_property(connector, FAILOVER), boolean_property(connector, "snapshot")
    if snapshot == "true" and failover == "true":
        message = f"connector {connector.name} has hotfailover and snapshot, which contradict each other"
        found.add(connector.place, message, "write snapshot=false: each reader of the topic chooses its first offset")
    elif snapshot == "true":
        message = f"snapshot=true of connector {connector.name} has no effect on a topic"
        found.warn(connector.place, message, "write snapshot=false: each reader of the topic chooses its first offset")
    for name in _ONLY_WITH_FAILOVER:
        if connector.get(name).strip() and failover != "true":
            message = f"property {name} of connector {connector.name} has no effect without hotfailover=true"
            found.warn(connector.place, message, f"write hotfailover=true, or leave {name} out")
        elif connector.get(name).strip():
            message = f"connector {connector.name} has {name} without effect: {NO_EFFECT[name]}"
            found.warn(connector.place, message, "leave it out", MistakeKind(WITHOUT_EFFECT, (f"property {name}",)))


def _check_against_quality(window: Window, connector: Connector, found: Mistakes) -> None:
    if window.quality is None:
        return
    failover, is_simple = boolean_property(connector, FAILOVER), window.quality.kind is QualityKind.SIMPLE
    if failover and (failover == "false") is not is_simple:
        message = f"connector {connector.name} has hotfailover={failover}, its window {window.name} is {window.quality}"
        hint = "leave hotfailover out: the window's quality decides" if failover == "false" else "leave one of them out"
        found.add(connector.place, f"{message}: these contradict each other", hint)


def _check_topic(window_path: str, connector: Connector, found: Mistakes) -> None:
    """Warns if the topic's name differs from the one that follows from window and prefix (SPEC B1, B2, Z20)."""
    topic, prefix = connector.get("kafkatopic").strip(), connector.get("urlhostport").strip()
    suffix = "I" if connector.direction is ConnectorDirection.PUBLISH else "O"
    expected = f"{prefix}.{window_path}.{suffix}"
    if topic and prefix and topic != expected and "@" not in topic + prefix:
        message = f"kafkatopic {topic[:120]!r} of connector {connector.name} is not the name that its window and urlhostport have"
        found.warn(connector.place, message, f"the topic is {expected}, with the prefix that an engine is started with")
