"""Which part may know which: the layers of the design, and who owns a third-party package.

    cli -> server, spark, demo -> testing -> host -> adapters, runners -> ha -> engine -> model

bus, coordination, residence, stores and telemetry are leaves: they know none of those, nor each other; `sqlite_file` is what the
SQLite bus and the SQLite coordination share, `addresses` and `processes` what several parts know of machines.

An import inside a function or under TYPE_CHECKING is knowledge too, and counts.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter

from tests.repo.tree import Source, Violation, dotted, nodes

_PLAIN = frozenset(
    {
        "addresses",
        "choices",
        "errors",
        "file_locks",
        "inbound",
        "interpreter",
        "passwords",
        "places",
        "positions",
        "processes",
        "retry",
        "runs",
        "scratch",
        "shard",
        "step_size",
        "stop_signals",
    }
)
_LEAVES = _PLAIN | {"bus", "coordination", "residence", "stores", "telemetry"}
_BELOW_HOST = _LEAVES | {"model", "engine", "ha", "runners", "adapters"}

MAY_IMPORT: dict[str, frozenset[str]] = {
    "addresses": frozenset({"errors"}),
    "choices": frozenset(),
    "errors": frozenset(),
    "inbound": frozenset(),
    "interpreter": frozenset(),
    "passwords": frozenset({"errors"}),
    "places": frozenset({"errors"}),
    "positions": frozenset(),
    "processes": frozenset(),
    "file_locks": frozenset({"processes"}),
    "retry": frozenset(),
    "runs": frozenset(),
    "scratch": frozenset({"processes"}),
    "shard": frozenset(),
    "step_size": frozenset(),
    "stop_signals": frozenset(),
    "sqlite_file": frozenset({"errors", "file_locks", "retry"}),
    "bus": frozenset({"addresses", "errors", "positions", "processes", "retry", "shard", "sqlite_file"}),
    "coordination": frozenset({"addresses", "errors", "passwords", "processes", "retry", "sqlite_file"}),
    "stores": frozenset({"errors", "passwords", "retry"}),
    "telemetry": frozenset({"choices", "errors"}),
    "residence": frozenset({"errors", "runs"}),
    "model": frozenset({"errors", "shard"}),
    "engine": frozenset({"errors", "positions", "runs", "shard", "step_size", "model"}),
    "ha": _LEAVES | {"model", "engine"},
    "runners": _LEAVES | {"model", "engine", "ha"},
    "adapters": _LEAVES | {"model", "engine", "ha"},
    "host": _BELOW_HOST,
    "testing": _BELOW_HOST | {"host"},
    "demo": _BELOW_HOST | {"host", "testing"},
    "server": _BELOW_HOST | {"host"},
    "spark": _BELOW_HOST | {"host"},
    "cli": _BELOW_HOST | {"host", "testing", "demo", "server", "spark"},
    "__main__": frozenset({"cli", "interpreter"}),
}
"""Per part of hotspare the other parts that it may import; each may import itself."""

ROOMS: dict[str, tuple[str, ...]] = {
    "engine": ("rows", "expressions", "kernels", "state", "codec", "head", "code", "operators"),
    "ha": ("calls", "rules", "outputs", "effects"),
    "adapters": ("failover", "files", "topics", "state", "sockets", "esp", "guess"),
    "cli": ("shared", "looking", "replaying", "initial"),
}
"""The folders of a part, lowest first: each may import those before it."""

OWNERS: dict[str, tuple[str, ...]] = {
    "pyspark": ("hotspare.runners.spark", "hotspare.spark"),
    "py4j": ("hotspare.runners.spark",),
    "numba": ("hotspare.engine",),
    "sqlglot": ("hotspare.expressions", "hotspare.model.frontends"),
    "lxml": ("hotspare.expressions", "hotspare.model.frontends"),
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
"""Third-party packages (and sqlite3) that only one part knows: module prefixes of that part."""

_LOADERS = frozenset({"importlib.import_module", "import_module", "__import__"})


def imported(source: Source) -> Iterator[tuple[ast.AST, str]]:
    """Every module that the file imports, absolutely named. `from a import b` counts as `a.b`, since b may be a module."""
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


def rooms(source: Source) -> Iterator[Violation]:
    """A folder of a part imports only folders of it that stand below it."""
    part, room = _part(source.module), _room(source.module)
    order = ROOMS.get(part, ())
    if room not in order:
        return
    for node, name in imported(source):
        other = _room(name)
        if _part(name) == part and other in order and order.index(other) > order.index(room):
            yield source.violation(node, f"{part}/{room} must not import {part}/{other}")


def circle(files: Sequence[Source]) -> Sequence[str]:
    """Modules that import each other, the first one again at the end; empty if there are none."""
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
    """A part imports only parts that stand below it."""
    part = _part(source.module)
    if not part:
        return
    if part not in MAY_IMPORT:
        yield source.violation(source.syntax, f"part {part} has no place in the layers")
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
    """A package with an owner is imported by that owner only."""
    if _part(source.module) == "testing":
        return
    for node, name in imported(source):
        package = name.split(".")[0]
        owners = OWNERS.get(package)
        if owners and not source.module.startswith(owners):
            yield source.violation(node, f"only {' and '.join(owners)} may import {package}")
