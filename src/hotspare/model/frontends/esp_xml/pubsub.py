"""The windows of an ESP XML project that are published: by `pubsub` of the project and of its windows, as SAS does.

    pubsub of the project    a window without pubsub    pubsub="true"    pubsub="false"
    auto                     published                  published        not published
    manual                   not published              published        not published
    none, or no attribute    as in YAML                 as in YAML       as in YAML

Not published means `Publication.NEEDED`: a subscribing connector publishes its window in any case. `hs:publish` has precedence.
Under `none`, clients of SAS cannot subscribe and read what connectors write. The rule of YAML publishes the same if there are
connectors.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from hotspare.model.frontends.esp_xml.elements import PUBLISH, PUBSUB
from hotspare.model.frontends.esp_xml.tree import Tree
from hotspare.model.frontends.values import parse_option
from hotspare.model.project import PUBLICATIONS, Publication


class PubsubMode(Enum):
    """The values of `pubsub` of a project."""

    NONE = "none"
    AUTO = "auto"
    MANUAL = "manual"


_MODES = {mode.value: mode for mode in PubsubMode} | {"": PubsubMode.NONE}
_ENABLED = {"true": Publication.PUBLISHED, "false": Publication.NEEDED, "": Publication.DERIVED}
_UNSAID = {PubsubMode.NONE: Publication.DERIVED, PubsubMode.AUTO: Publication.PUBLISHED, PubsubMode.MANUAL: Publication.NEEDED}


def read_mode(tree: Tree, project: Any) -> PubsubMode:
    """Returns the mode of a `<project>`; NONE if it has no such attribute. An unknown value is a mistake of the project."""
    text = tree.attribute(project, PUBSUB).lower()
    return parse_option(text, _MODES, f"{PUBSUB}:", tree.place(project), tree.found) or PubsubMode.NONE


def read_publication(tree: Tree, window: Any, mode: PubsubMode) -> Publication:
    """Returns whether the window's outputs are an output stream. An unknown value is a mistake of the project."""
    place, text = tree.place(window), window.get(PUBLISH) or ""
    own = parse_option(tree.attribute(window, PUBSUB).lower(), _ENABLED, f"{PUBSUB}:", place, tree.found)
    if text:
        return parse_option(text, PUBLICATIONS, "publish:", place, tree.found) or Publication.DERIVED
    if mode is PubsubMode.NONE or own in (None, Publication.DERIVED):
        return _UNSAID[mode]
    return own
