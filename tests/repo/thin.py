"""Modules that one sibling alone imports: most are read better in its file, and each that stays says why it does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from tests.repo.imports import imported
from tests.repo.tree import Source

KEPT_MAX = 30
KEPT: dict[str, str] = {}
"""The reason of each, by its name without `hotspare.`"""

_BY_LAYOUT = frozenset({"declaration", "operator", "loops"})
"""Modules of a window type's folder."""


def thin_modules(files: Iterable[Source]) -> dict[str, str]:
    """Returns the only importer of each module that has one, in the same folder."""
    modules = {source.module: source for source in files}
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for source in modules.values():
        for _, name in imported(source):
            target = name if name in modules else name.rpartition(".")[0]
            if target in modules and target != source.module:
                importers[target].add(source.module)
    found = {}
    for module, by in importers.items():
        folder, _, name = module.rpartition(".")
        is_of_type = folder.startswith("hotspare.windows.") and name in _BY_LAYOUT
        if len(by) == 1 and not is_of_type and modules[module].package == folder and next(iter(by)).rpartition(".")[0] == folder:
            found[module.removeprefix("hotspare.")] = next(iter(by)).removeprefix("hotspare.")
    return found
