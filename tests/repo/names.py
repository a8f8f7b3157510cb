"""Names with one meaning in all of hotspare: those of public classes."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence

from tests.repo.tree import Source, Violation, nodes


def doubled_classes(files: Sequence[Source]) -> Iterator[Violation]:
    """Yields each public class whose name another file gives to a class of its own."""
    places: dict[str, list[tuple[Source, ast.AST]]] = defaultdict(list)
    for source in files:
        for node in nodes(source, ast.ClassDef):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append((source, node))
    for name, found in places.items():
        for source, node in found[1:]:
            yield source.violation(node, f"class {name} is also in {found[0][0].path}: one name, one meaning")
