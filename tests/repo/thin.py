"""Modules that only one sibling imports: most are read better in its file, and each that remains has a reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from tests.repo.imports import imported
from tests.repo.tree import Source

KEPT_MAX = 30
KEPT: dict[str, str] = {
    "adapters.start_order": "decides, and connectors act",
    "bus.kafka.append": "with the bus it is 823 lines",
    "bus.kafka.shared_consumer": "one consumer and thread for all partitions: a subject of its own",
    "coordination.zookeeper.session": "with the coordination it is 875 lines",
    "expressions.spark_syntax": "the only file that knows sqlglot",
    "flow.merge": "one order of the events of all partitions: a subject of its own",
    "ha.effects.perform": "performs what the HA loop asks the rules for",
    "ha.effects.publishing": "with what performs it is 728 lines",
    "host.kernels": "a command of its own, without an engine",
    "host.partitioned.shard_assignment": "decides where tasks run, and the application acts",
    "host.partitioned.task": "runs in another process than the application",
    "host.watchdog.http_answers": "imported only on demand, because it costs the parent memory",
    "host.watchdog.watch": "also a command of its own, for an engine without a parent",
    "projects.esp_xml": "with what loads projects it is 722 lines",
    "runners.spark.source": "the only file that knows Spark's data source interface",
    "scripting.lua.rewriting": "with the program it is 786 lines",
    "scripting.python.modules": "with the program it is 958 lines",
    "scripting.python.variables": "which variables are state: a subject of its own",
    "stores.changelog.records": "decides what the records say together, and the store acts",
    "stores.objects.layout": "what a bucket's names say: a subject of its own",
    "stores.sql.database": "drivers, transactions and tables, below what a store is",
    "table.evicted_pages": "which pages of rows are on disk, below the pages",
    "table.page_cache.page_file": "memory that a file is mapped into, below the budget",
    "table.queue": "with relations it is 1,075 lines",
    "table.text_pages": "with strings it is 859 lines",
    "testing.kafka_jars": "a command of its own, which a hint names",
    "windows.aggregate.groups": "what an aggregate keeps, below what it emits",
    "windows.geofence.geometry": "with the operator it is 711 lines",
    "windows.pattern.code": "user code in a pattern: a subject of its own",
    "windows.pattern.conditions": "what a condition asks of the event alone, below the logic of patterns",
}
"""The reason for each, by its name without `hotspare.`."""

_BY_LAYOUT = frozenset({"declaration", "operator", "loops"})
"""Modules of a window type's folder."""
_REGISTRIES = frozenset({"hotspare.expressions.function_table"})
"""Modules that name others in a table, besides each `open`: a new kind is then one module and one line."""


def thin_modules(files: Iterable[Source]) -> dict[str, str]:
    """Returns the only importer of each module that has one, in the same folder. Excludes modules that a registry names, files
    and folders `loops`, which have kernels, and commands: `cli.main` loads those by name."""
    modules = {source.module: source for source in files}
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for source in modules.values():
        for _, name in imported(source):
            target = name if name in modules else name.rpartition(".")[0]
            if target in modules and target != source.module:
                importers[target].add(source.module)
    found = {}
    for module, by in importers.items():
        importer = next(iter(by))
        folder = module.rpartition(".")[0]
        is_alone = len(by) == 1 and modules[module].package == folder == importer.rpartition(".")[0]
        if is_alone and not _is_by_layout(module) and not _is_registry(importer):
            found[module.removeprefix("hotspare.")] = importer.removeprefix("hotspare.")
    return found


def _is_by_layout(module: str) -> bool:
    folder, _, name = module.rpartition(".")
    is_of_type = folder.startswith("hotspare.windows.") and name in _BY_LAYOUT
    return is_of_type or "loops" in (name, folder.rpartition(".")[2]) or folder == "hotspare.cli"


def _is_registry(module: str) -> bool:
    return module in _REGISTRIES or module.endswith(".open")
