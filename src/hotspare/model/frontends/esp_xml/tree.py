"""Reads ESP XML elements: places, texts with properties replaced, and mistakes for unknown elements and attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hotspare.base.errors import MistakeKind, Place, RemedyKind
from hotspare.model.durations import parse_seconds
from hotspare.model.frontends.esp_xml.elements import CLOSED_ELEMENTS, ElementShape
from hotspare.model.frontends.properties import Substitution
from hotspare.model.frontends.values import INDEX_TYPES, parse_option, property_value
from hotspare.model.mistakes import REFUSED, UNKNOWN, WITHOUT_EFFECT, Mistakes
from hotspare.model.names import nearest_names_hint
from hotspare.model.project import IndexType

_TRUTH = {"true": "true", "1": "true", "false": "", "0": "", "": ""}


@dataclass(frozen=True)
class Shapes:
    """The shapes of the known elements, by tag. `texts`: the elements whose text is read.

    `common`: the elements that every project may have. `windows`: by tag of a window element, the shapes that apply only inside
    this element, and its own; a key `PARENT/TAG` applies only to children of PARENT.
    """

    common: Mapping[str, ElementShape]
    windows: Mapping[str, Mapping[str, ElementShape]]
    texts: frozenset[str]

    def shape_of(self, element: Any) -> ElementShape:
        """Returns the shape of an element; those of the enclosing window have precedence. Raises KeyError for an unknown element,
        so the caller first checks that the parent's shape lists the tag."""
        around = (each.tag for each in (element, *element.iterancestors()) if each.tag in self.windows)
        own: Mapping[str, ElementShape] = self.windows.get(next(around, ""), {})
        parent = element.getparent()
        inside = own.get(f"{parent.tag}/{element.tag}") if parent is not None else None
        return inside or own.get(element.tag) or self.common[element.tag]


class Tree:
    """Reads elements of one text. Elements are lxml's; comments and processing instructions are skipped."""

    def __init__(self, file: str, found: Mistakes, substitution: Substitution, shapes: Shapes) -> None:
        self._shapes = shapes
        self.file = file
        self.found = found
        self.substitution = substitution
        self._idle: dict[tuple[str, str], dict[str, Place]] = {}

    def warn_of_idle(self) -> None:
        """Adds a warning for each attribute without effect that `check` found, with all its tags, at its first place."""
        for (name, reason), places in self._idle.items():
            tags = ", ".join(f"<{tag}>" for tag in places)
            kind = MistakeKind(WITHOUT_EFFECT, (f"attribute {name}",))
            self.found.warn(
                next(iter(places.values())), f"attribute {name} of {tags} has no effect: {reason}", "leave it out", kind
            )

    def place(self, element: Any) -> Place:
        return Place(self.file, element.sourceline or 0)

    def check(self, element: Any) -> None:
        """Adds mistakes and warnings for attributes, text and children that have no meaning in this element."""
        self.check_own(element)
        shape = self._shapes.shape_of(element)
        for child in elements(element):
            if child.tag in shape.refused:
                message = f"element <{child.tag}> in <{element.tag}> cannot be supported: {shape.refused[child.tag]}"
                outlook = RemedyKind.NEVER if child.tag in CLOSED_ELEMENTS else RemedyKind.CHANGE
                self.found.add(
                    self.place(child), message, "leave it out", MistakeKind(REFUSED, (f"element <{child.tag}>",), outlook)
                )
            elif child.tag in shape.idle_children:
                reason, kind = shape.idle_children[child.tag], MistakeKind(WITHOUT_EFFECT, (f"element <{child.tag}>",))
                self.found.warn(self.place(child), f"element <{child.tag}> has no effect: {reason}", "leave it out", kind)
            elif child.tag not in shape.children and child.tag not in shape.label_children:
                hint = nearest_names_hint(child.tag, shape.children)
                what = f"element <{child.tag}> in <{element.tag}>"
                self.found.add(
                    self.place(child), f"{what} does not exist yet", hint, MistakeKind(UNKNOWN, (what,), RemedyKind.MISSING)
                )

    def check_own(self, element: Any) -> None:
        """Checks attributes and text as `check` does, but not the children."""
        shape = self._shapes.shape_of(element)
        for name, value in element.attrib.items():
            if name in shape.read or name in shape.labels or value.strip().lower() in shape.neutral.get(name, ()):
                continue
            if name in shape.idle:
                self._idle.setdefault((name, shape.idle[name]), {}).setdefault(element.tag, self.place(element))
                continue
            known = {n for n in shape.attributes if "{" not in n}
            hint = "leave it out" if name in shape.neutral else nearest_names_hint(name, known)
            kind = MistakeKind(UNKNOWN, (f"attribute {name} of <{element.tag}>",), RemedyKind.MISSING)
            self.found.add(self.place(element), f"attribute {name}={value!r} of <{element.tag}> does not exist yet", hint, kind)
        if element.tag not in self._shapes.texts and (stray := _own_text(element)):
            kind = MistakeKind(WITHOUT_EFFECT, (f"text in <{element.tag}>",))
            self.found.warn(self.place(element), f"text {stray[:40]!r} in <{element.tag}> has no effect", "remove it", kind)

    def children(self, element: Any, tag: str) -> list[Any]:
        return [child for child in elements(element) if child.tag == tag]

    def only_child(self, element: Any, tag: str) -> Any:
        """Returns the child with this tag, after checking it; None if there is none. A second one adds a mistake."""
        found = self.children(element, tag)
        if not found:
            return None
        for second in found[1:]:
            self.found.add(self.place(second), f"<{element.tag}> has two elements <{tag}>", "leave one of them out")
        self.check(found[0])
        return found[0]

    def attribute(self, element: Any, name: str) -> str:
        """Returns the attribute's value with properties replaced, "" if it is absent."""
        return self.substitution.replace_references(element.get(name) or "", self.place(element)).strip()

    def true_attribute(self, element: Any, name: str) -> str:
        """Returns `"true"` for `true` and `1`, else "". Adds a mistake for other texts than true, false, 1, 0 and ""."""
        return parse_option(self.attribute(element, name).lower(), _TRUTH, f"{name}:", self.place(element), self.found) or ""

    def raw_text(self, element: Any) -> str:
        parts = [element.text or "", *(child.tail or "" for child in element if not isinstance(child.tag, str))]
        return "".join(parts)

    def text(self, element: Any) -> str:
        return self.substitution.replace_references(self.raw_text(element), self.place(element))

    def description(self, element: Any) -> str:
        return "\n".join(self.raw_text(child).strip() for child in self.children(element, "description"))

    def index(self, element: Any, default: IndexType = IndexType.HASH) -> IndexType:
        text = self.attribute(element, "index")
        return (parse_option(text, INDEX_TYPES, "index type", self.place(element), self.found) if text else None) or default

    def heartbeat_us(self, element: Any) -> int:
        text = self.attribute(element, "heartbeat-interval")
        try:
            return parse_seconds(text) if text else 1_000_000
        except ValueError:
            self.found.add(
                self.place(element),
                f"heartbeat-interval {text!r} is not a number of seconds",
                "write a whole number of seconds, such as 1",
            )
            return 1_000_000

    def property_elements(self, element: Any) -> dict[str, Any]:
        """Returns the elements `<properties><property name=...>` below `element`: name to element, in order."""
        named: dict[str, Any] = {}
        wrapper = self.only_child(element, "properties")
        for child in self.children(wrapper, "property") if wrapper is not None else ():
            self.check(child)
            name = self.attribute(child, "name")
            if not name or name in named:
                self.found.add(
                    self.place(child),
                    f"property {name!r} is given twice" if name else "a property has no name",
                    "give each property a name of its own",
                )
            named.setdefault(name, child)
        return named

    def properties(self, element: Any) -> dict[str, str]:
        """Returns names and values of `<properties>` below `element`."""
        return {name: property_value(self.text(child)) for name, child in self.property_elements(element).items()}


def _own_text(element: Any) -> str:
    """Returns the text of the element itself, outside its children."""
    return "".join([element.text or "", *(child.tail or "" for child in element)]).strip()


def elements(element: Any) -> list[Any]:
    return [child for child in element if isinstance(child.tag, str)]
