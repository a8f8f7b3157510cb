"""The parts that every other package may use: errors, retry, processes, locks, URLs."""

__all__ = [
    "addresses",
    "call_board",
    "call_place",
    "choices",
    "errors",
    "file_locks",
    "inbound_role",
    "interpreter",
    "link",
    "passwords",
    "places",
    "positions",
    "processes",
    "retry",
    "scratch",
    "shard",
    "sqlite_file",
    "step_size",
    "stop_signals",
]
