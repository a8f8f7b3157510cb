"""All elements of ESP XML that mean something: those of every project, and those that window types bring."""

from __future__ import annotations

from dataclasses import replace

from hotspare.model.frontends.esp_xml.elements import COMMON, TEXTS, ElementShape, shape
from hotspare.model.frontends.esp_xml.tree import Shapes
from hotspare.model.scripts import MODULES_ELEMENTS, MODULES_SHAPES
from hotspare.windows.registry import WINDOW_TYPES

WINDOWS: dict[str, ElementShape] = {f"window-{name}": each.xml for name, each in WINDOW_TYPES.items()}

_PROJECT = replace(COMMON["project"], children=COMMON["project"].children | MODULES_ELEMENTS)

SHAPES = Shapes(
    common={**COMMON, **MODULES_SHAPES, "project": _PROJECT, "windows": shape(children=" ".join(WINDOWS))},
    windows={f"window-{name}": {f"window-{name}": each.xml, **each.xml_elements} for name, each in WINDOW_TYPES.items()},
    texts=TEXTS.union(*(each.xml_texts for each in WINDOW_TYPES.values())),
)
