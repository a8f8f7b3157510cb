"""The engine's side of the watch: shares its calls with the parent that started it, or with a watcher that it starts."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from hotspare.base.call_board import BoardSetting, CallBoard, CallSlot, unwatched_slot
from hotspare.base.processes import process_space, process_start
from hotspare.base.shard import shards_of
from hotspare.base.stop_signals import ignore_repeated_signals
from hotspare.bus.naming import group_name
from hotspare.flow.plan import Plan, Stage
from hotspare.host.options import EngineOptions
from hotspare.host.topics import group_topics
from hotspare.host.watchdog.recorder import module_command, module_environment
from hotspare.host.watchdog.replay_calls import NOTHING_KNOWN, ReplayCalls
from hotspare.host.watchdog.shared_memory import BOARD_VARIABLE, IS_POSSIBLE, create_memory, engine_board, publish_board
from hotspare.host.watchdog.trace import write_lines_behind
from hotspare.telemetry.log import configured_format

_WATCH = "hotspare.host.watchdog.watch"
_CODE_STAGES = frozenset({Stage.WINDOW, Stage.SPLITTER})
"""The stages that may call user code. The text of a board has room for the names of all their nodes."""


class EngineBoard:
    """The calls of this process: a slot for each shard."""

    def __init__(self, board: CallBoard | None = None) -> None:
        """`board` is None if nothing watches."""
        self._board = board

    def slot(self, number: int) -> CallSlot:
        """Returns the slot of shard `number`."""
        return unwatched_slot() if self._board is None else self._board.slot(number)

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """Shows that this thread loads the project within the block."""
        if self._board is None:
            yield
            return
        self._board.slot(0).set_thread(threading.get_native_id())
        self._board.set_setting(BoardSetting.IS_LOADING, 1)
        try:
            yield
        finally:
            self._board.set_setting(BoardSetting.IS_LOADING, 0)

    def name_places(self, options: EngineOptions, plan: Plan, coordination_url: str) -> None:
        """Shows the names with which a watcher records an attempt."""
        if self._board is None:
            return
        project, shards = plan.resolved.project, shards_of(options.shards)
        topics = group_topics(project, plan, options.prefix, shards[0])
        self._board.set_text(
            {
                **_own_names(options.engine),
                **_call_names(plan),
                "coordination": coordination_url,
                "groups": [group_name(options.prefix, project.name, shard) for shard in shards],
                "topics": [topic.name for topic in topics.inbound],
            }
        )


UNWATCHED = EngineBoard()


def attach(options: EngineOptions) -> EngineBoard:
    """Returns the board of this process. If a parent watches, it is the parent's; otherwise a watcher is started if a call has a
    limit. Call it once, from the process that runs the engine."""
    memory = _memory_of_parent()
    if memory is None and IS_POSSIBLE and (options.code_deadline_ms or options.code_memory_bytes):
        memory = create_memory()
        _start_watcher(memory)
    if memory is None:
        return UNWATCHED
    board = _traced_board(memory, options.shards)
    board.set_setting(BoardSetting.DEADLINE_MS, options.code_deadline_ms)
    board.set_setting(BoardSetting.MEMORY_BYTES, options.code_memory_bytes)
    board.set_text(_own_names(options.engine))
    publish_board(board, options.shards)
    return EngineBoard(board)


@dataclass(frozen=True, slots=True)
class WatchedCalls:
    """The calls of a replay: the `slot` that shows them, and what earlier starts of the replay found out about them."""

    slot: CallSlot = field(default_factory=unwatched_slot)
    known: ReplayCalls = NOTHING_KNOWN


def watched_calls(plan: Plan, deadline_ms: int) -> WatchedCalls:
    """Returns the calls of a replay of `plan`, which its parent watches if it has one. `deadline_ms`: the limit of a call. Call it
    once, before the first event."""
    memory, known = _memory_of_parent(), ReplayCalls.taken_from(os.environ)
    if memory is None:
        return WatchedCalls()
    board = _traced_board(memory, 1)
    board.set_setting(BoardSetting.DEADLINE_MS, deadline_ms)
    board.set_text({**_own_names(""), **_call_names(plan), "topics": [str(source) for source in plan.resolved.sources]})
    publish_board(board, 1)
    return WatchedCalls(board.slot(0), known)


def _traced_board(memory: int, slots: int) -> CallBoard:
    trace = os.dup(memory)
    board = engine_board(memory, slots)
    write_lines_behind(trace, slots)
    board.set_setting(BoardSetting.HAS_TRACE, 1)
    return board


def _memory_of_parent() -> int | None:
    """Returns the descriptor of the memory that a parent watches; None without a parent."""
    given = os.environ.pop(BOARD_VARIABLE, "")
    if not given:
        return None
    ignore_repeated_signals()
    return int(given.partition(":")[0])


def _own_names(engine: str) -> dict[str, str]:
    process = os.getpid()
    start = f"{process_space()} {process} {process_start(process)}"
    return {"engine": engine, "start": start, "host": socket.gethostname(), "log_format": configured_format().value}


def _call_names(plan: Plan) -> dict[str, list[str]]:
    """Returns the names of the windows of all nodes that may call user code, and their versions; "" for other nodes."""
    windows = [node.window if node.stage in _CODE_STAGES else "" for node in plan.nodes]
    return {"windows": windows, "versions": [plan.window_versions.get(window, "") for window in windows]}


def _start_watcher(memory: int) -> None:
    """Starts a watcher in a session of its own, so that signals from a terminal do not end it before its engine."""
    command = module_command(_WATCH, str(memory), str(os.getpid()))
    files = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1)]
    os.posix_spawn(command[0], command, module_environment(), file_actions=files, setsid=True)
