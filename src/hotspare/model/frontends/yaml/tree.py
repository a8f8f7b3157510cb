"""YAML text to a tree of plain values that know their places, with limits that PyYAML's own loader lacks.

Only mappings, sequences and texts exist. A scalar is its text, however YAML would interpret it, so `no` and `1.10` stay as written.
Anchors, aliases, tags and second documents are refused; so is anything nested deeper than a project can be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

from hotspare.base.errors import Place
from hotspare.model.mistakes import Mistakes

DEPTH_MAX = 20

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass
class TextNode:
    value: str
    place: Place


@dataclass
class ListNode:
    place: Place
    items: list[Node] = field(default_factory=list)


@dataclass
class MappingNode:
    """A mapping in the order of the text. `places` holds the place of each key."""

    place: Place
    values: dict[str, Node] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)


Node: TypeAlias = TextNode | ListNode | MappingNode


class _Refused(Exception):
    def __init__(self, place: Place, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.place, self.hint = place, hint


def parse_tree(text: str, file: str, found: Mistakes) -> Node | None:
    """Returns the root of the only document; None if the text is empty, or after a mistake that stops reading. A repeated key is a
    mistake; the first value is used.
    """
    try:
        return _build_tree(yaml.parse(text, Loader=_Loader), file, found)
    except _Refused as error:
        found.add(error.place, str(error), error.hint)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file)
        found.add(
            place, f"this is not YAML: {error.problem or error.context}", "check the indentation and the quotes before this place"
        )
    except (yaml.YAMLError, UnicodeError) as error:
        found.add(
            Place(file), f"this is not YAML: {str(error).splitlines()[0]}", "check the indentation and the quotes before this place"
        )
    return None


def _build_tree(events: Iterator[Any], file: str, found: Mistakes) -> Node | None:
    """Builds the tree from the parser's events without recursion. Raises _Refused for a second document and for too deep
    nesting."""
    open_nodes: list[ListNode | MappingNode] = []
    keys: list[TextNode | None] = []  # per open node: the key whose value is next
    root: Node | None = None
    for event in events:
        place = Place(file, event.start_mark.line + 1, event.start_mark.column + 1)
        if isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
            open_nodes.pop()
            keys.pop()
            continue
        node = _node_of(event, place)
        if node is None:
            continue
        if open_nodes:
            keys[-1] = _attach_node(open_nodes[-1], keys[-1], node, found)
        elif root is not None:
            raise _Refused(place, "a file holds one YAML document, but a second one begins here")
        else:
            root = node
        if not isinstance(node, TextNode):
            open_nodes.append(node)
            keys.append(None)
            if len(open_nodes) > DEPTH_MAX:
                raise _Refused(place, f"the text is nested deeper than {DEPTH_MAX} levels")
    return root


def _node_of(event: Any, place: Place) -> Node | None:
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
        raise _Refused(place, "anchors and aliases are not accepted", "write the value out")
    tag = getattr(event, "tag", None)
    if tag and tag != "!":
        raise _Refused(place, f"the tag {tag} is not accepted", "write plain values")
    if isinstance(event, yaml.ScalarEvent):
        return TextNode(event.value, place)
    if isinstance(event, yaml.SequenceStartEvent):
        return ListNode(place)
    return MappingNode(place) if isinstance(event, yaml.MappingStartEvent) else None


def _attach_node(parent: ListNode | MappingNode, key: TextNode | None, node: Node, found: Mistakes) -> TextNode | None:
    """Adds `node` to `parent`. Returns the key whose value is next: `node` itself if it is a key, else None. Raises _Refused for a
    key that is not a text."""
    if isinstance(parent, ListNode):
        parent.items.append(node)
        return None
    if key is None:
        if not isinstance(node, TextNode):
            raise _Refused(node.place, "a key must be a text")
        return node
    if key.value in parent.values:
        found.add(key.place, f"{key.value!r} is given twice", f"the first is in line {parent.places[key.value].line}")
    else:
        if not isinstance(node, TextNode):
            node.place = key.place  # a reader looks for `name:`, not for what follows it
        parent.values[key.value] = node
        parent.places[key.value] = key.place
    return None
