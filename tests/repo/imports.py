"""Allowed imports between packages, in one table from the lowest to the highest, and the owners of third-party packages.

A window type imports nothing of another, and its declaration loads no kernel (`slices`). An import inside a function or under
TYPE_CHECKING is a dependency too, and counts.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter

from tests.repo.tree import Source, Violation, dotted, nodes

_MODEL = frozenset({"base", "model"})
_ROWS = _MODEL | {"rows"}
_WINDOWS = _ROWS | {"formats", "expressions", "table", "scripting", "windows"}
_CORE = _WINDOWS | {"stages", "projects", "flow"}
_LEAVES = frozenset({"base", "telemetry", "bus", "coordination", "stores"})
_BELOW_HOST = _LEAVES | _CORE | {"ha", "runners", "adapters"}

MAY_IMPORT: dict[str, frozenset[str]] = {
    "base": frozenset(),
    "telemetry": frozenset({"base"}),
    "model": frozenset({"base"}),
    "rows": _MODEL,
    "formats": _ROWS,
    "expressions": _ROWS,
    "table": _ROWS,
    "scripting": _ROWS | {"table"},
    "windows": _WINDOWS - {"windows"},
    "projects": _MODEL | {"windows"},
    "stages": _ROWS | {"table", "windows"},
    "flow": _CORE - {"flow"},
    "bus": frozenset({"base"}),
    "coordination": frozenset({"base"}),
    "stores": frozenset({"base"}),
    "ha": _LEAVES | _CORE,
    "runners": _LEAVES | _CORE | {"ha"},
    "adapters": _LEAVES | _CORE | {"ha"},
    "host": _BELOW_HOST,
    "operate": _BELOW_HOST | {"host"},
    "testing": _BELOW_HOST | {"host"},
    "demo": _BELOW_HOST | {"host", "testing"},
    "server": _BELOW_HOST | {"host", "operate"},
    "spark": _BELOW_HOST | {"host", "operate"},
    "cli": _BELOW_HOST | {"host", "operate", "testing", "demo", "server", "spark"},
    "__main__": frozenset({"base", "host", "cli"}),
}
"""The packages that each package of hotspare may import, which are above it in this table; each may import itself."""

ROOMS: dict[str, tuple[str, ...]] = {
    "table": ("loops", "page_cache"),
    "ha": ("calls", "rules", "outputs", "effects"),
    "adapters": ("failover", "files", "topics", "state", "sockets", "esp", "guess"),
    "cli": ("shared", "looking", "replaying", "initial"),
}
"""The folders of a package, lowest first: each may import those before it."""

DECLARATION_SIDE: dict[str, frozenset[str]] = {
    "calculate": frozenset({"algorithms"}),
    "join": frozenset({"outputs"}),
    "pattern": frozenset({"logic", "patterns"}),
}
"""By window type, the modules of its folder that belong to its declaration: they import only the model and one another."""

OWNERS: dict[str, tuple[str, ...]] = {
    "pyspark": ("hotspare.runners.spark", "hotspare.spark"),
    "py4j": ("hotspare.runners.spark",),
    "numba": ("hotspare.rows.compile", "hotspare.rows.machine_code"),
    "sqlglot": ("hotspare.expressions",),
    "lxml": ("hotspare.expressions", "hotspare.model.frontends", "hotspare.projects.esp_xml"),
    "sqlite3": ("hotspare.base.sqlite_file", "hotspare.bus", "hotspare.coordination", "hotspare.stores"),
    "typer": ("hotspare.cli",),
    "structlog": ("hotspare.telemetry",),
    "confluent_kafka": ("hotspare.bus.kafka", "hotspare.stores.changelog"),
    "kazoo": ("hotspare.coordination.zookeeper",),
    "sqlalchemy": ("hotspare.stores.sql",),
    "redis": ("hotspare.stores.redis", "hotspare.adapters.state"),
    "cryptography": ("hotspare.stores.encryption",),
    "fsspec": ("hotspare.stores.objects",),
    "botocore": ("hotspare.stores.objects",),
    "aiohttp": ("hotspare.stores.objects",),
    "fastavro": ("hotspare.formats",),
    "lupa": ("hotspare.scripting.lua",),
    "fastapi": ("hotspare.server",),
    "uvicorn": ("hotspare.server",),
}
"""Third-party packages (and sqlite3) that only one part may import: module prefixes of that part."""

_LOADERS = frozenset({"importlib.import_module", "import_module", "__import__"})


def imported(source: Source) -> Iterator[tuple[ast.AST, str]]:
    """Yields every module that the file imports, absolutely named. `from a import b` counts as `a.b`, since b may be a module."""
    for node in nodes(source, ast.Import, ast.ImportFrom, ast.Call):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _base(source, node)
            yield from ((node, f"{base}.{alias.name}" if base else alias.name) for alias in node.names)
        elif isinstance(node, ast.Call) and dotted(node.func) in _LOADERS and node.args:
            name = node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield node, name.value


def _base(source: Source, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = source.package.split(".")
    kept = package[: len(package) - node.level + 1]
    return ".".join([*kept, node.module] if node.module else kept)


def slices(source: Source) -> Iterator[Violation]:
    """Yields imports of one window type by another. A declaration imports the model, an operator what all types share. Only the
    registry imports declarations of several types, and of the windows the packages that check projects import only the registry."""
    part, type_, module = (*source.module.split(".")[1:], "", "", "")[:3]
    for node, name in imported(source):
        names = (*name.split("."), "", "")
        if names[:2] != ("hotspare", "windows"):
            continue
        other, file = names[2:4]
        if part == "projects" and other != "registry":
            yield source.violation(node, f"projects must not import windows/{other}")
        elif part == "windows" and type_ != "registry" and other not in (type_, "shared", "registry"):
            yield source.violation(node, f"windows/{type_} must not import windows/{other}")
        elif part == "windows" and _is_declaration(type_, module) and not (other == type_ and _is_declaration(type_, file)):
            yield source.violation(node, f"the declaration of {type_} must not import windows/{other}/{file}")
        elif (part, type_) == ("windows", "registry") and file != "declaration":
            yield source.violation(node, f"the registry must not import windows/{other}/{file}")
    if part == "windows" and (_is_declaration(type_, module) or type_ == "registry"):
        for node, name in imported(source):
            if _part(name) not in ("", "base", "model", "windows"):
                yield source.violation(node, f"a declaration must not import {_part(name)}")


def _is_declaration(type_: str, module: str) -> bool:
    return module == "declaration" or module in DECLARATION_SIDE.get(type_, ())


def rooms(source: Source) -> Iterator[Violation]:
    """Yields imports by a folder of `ROOMS` of a folder after it."""
    part, room = _part(source.module), _room(source.module)
    order = ROOMS.get(part, ())
    if room not in order:
        return
    for node, name in imported(source):
        other = _room(name)
        if _part(name) == part and other in order and order.index(other) > order.index(room):
            yield source.violation(node, f"{part}/{room} must not import {part}/{other}")


def circle(files: Sequence[Source]) -> Sequence[str]:
    """Returns modules that import each other, the first one again at the end; empty if no modules do."""
    modules = {source.module for source in files}
    graph: dict[str, set[str]] = {}
    for source in files:
        found = {name if name in modules else name.rpartition(".")[0] for _, name in imported(source)}
        graph[source.module] = (found & modules) - {source.module}
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        return tuple(error.args[1])
    return ()


def direction(source: Source) -> Iterator[Violation]:
    """Yields imports of packages that are not above the importer in `MAY_IMPORT`."""
    part = _part(source.module)
    if not part:
        return
    if part not in MAY_IMPORT:
        yield source.violation(source.syntax, f"package {part} is not in MAY_IMPORT")
        return
    for node, name in imported(source):
        other = _part(name)
        if other and other != part and other in MAY_IMPORT and other not in MAY_IMPORT[part]:
            yield source.violation(node, f"{part} must not import {other}")


def _part(module: str) -> str:
    names = module.split(".")
    return names[1] if names[0] == "hotspare" and len(names) > 1 else ""


def _room(module: str) -> str:
    names = module.split(".")
    return names[2] if names[0] == "hotspare" and len(names) > 2 else ""


def ownership(source: Source) -> Iterator[Violation]:
    """Yields imports of a package by other modules than its owner."""
    if _part(source.module) == "testing":
        return
    for node, name in imported(source):
        package = name.split(".")[0]
        owners = OWNERS.get(package)
        if owners and not source.module.startswith(owners):
            yield source.violation(node, f"only {' and '.join(owners)} may import {package}")
