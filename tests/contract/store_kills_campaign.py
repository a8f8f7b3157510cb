"""kill -9 at every point of a write, of the writer, of a collector after a killed writer, and of the server, for every kind of
store: `make store-kills`.

    make store-kills ARGS="--only redis s3 --of writer"
    make store-kills ARGS="--only changelog --of server --points 21-40"       a part of it: a whole kind takes an hour

Exits with 1 if there was a finding, after all points.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hotspare.cli.shared.display import progress_bar
from tests.contract.store_kills import (
    KINDS,
    SERVERS,
    SHORT_WAITS,
    Left,
    Lost,
    Torn,
    kill_collectors,
    kill_server,
    kill_writers,
    served,
    why_no_hosts,
)

CHUNK = 40
"""The number of points on one server; each kill adds to its work at the next start."""
OF = ("writer", "collector", "server")
_FOUND = {Lost: "lost", Torn: "torn", Left: "left"}


@dataclass
class Tried:
    """The results of one kind of store. `last`: the last point that was tried, of `count`."""

    killed: int = 0
    count: int = 0
    last: int = 0
    found: Counter[str] = field(default_factory=Counter)


def main() -> int:
    parser = argparse.ArgumentParser(prog="store-kills", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS, metavar="KIND", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--of", nargs="+", choices=OF, default=OF, metavar="WHOM", help="what is killed: writer, collector, server")
    parser.add_argument(
        "--points", type=_span, default=(1, sys.maxsize), metavar="FIRST-LAST", help="these alone; all if not given"
    )
    options = parser.parse_args()
    found = sum(_all_points(kind, options.of, *options.points) for kind in options.only)
    return 1 if found else 0


def _span(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def _all_points(kind: str, of: Sequence[str], first: int, last: int) -> int:
    """Tries all points; returns the number of findings."""
    if reason := why_no_hosts(kind):
        print(f"{kind}: left out, {reason}", flush=True)
        return 0
    began, said, found = time.monotonic(), [kind], Counter[str]()
    for whom in of:
        if whom == "server" and kind not in SERVERS:
            said.append("server none")
            continue
        tried = Tried(last=first - 1)
        while tried.last < min(last, tried.count or last) and _goes_on(kind, whom, tried, last):
            pass
        said.append(f"{whom} {tried.killed}/{max(0, min(last, tried.count) - first + 1)}")
        found += tried.found
    said += [f"{what} {found[what]}" for what in ("lost", "torn", "left", "other") if found[what] or what != "other"]
    print(*said, f"in {time.monotonic() - began:.0f} s", flush=True)
    return found.total()


def _goes_on(kind: str, whom: str, tried: Tried, last: int) -> bool:
    """Tries the next points, on a store of its own; returns False if there was none."""
    first = tried.last + 1

    def choose(count: int) -> Sequence[int]:
        tried.count = count
        return range(first, min(first + CHUNK, last + 1, count + 1))

    def told(point: int) -> None:
        tried.last, tried.killed = point, tried.killed + 1
        show(point, tried.count, f"{tried.found.total()} findings")

    with contextlib.ExitStack() as stack:
        show = stack.enter_context(progress_bar(f"{kind}: kill -9 of the {whom}"))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hotspare-kills-", ignore_cleanup_errors=True)))
        try:
            place = stack.enter_context(served(kind, folder))
            stack.enter_context(contextlib.closing(place.store))
            if whom == "writer":
                kill_writers(place, choose, 0, told)
            elif whom == "collector":
                kill_collectors(place, choose, told)
            else:
                kill_server(stack.enter_context(place.opened(SHORT_WAITS)), choose, told)
        except Exception as error:
            tried.found[_FOUND.get(type(error), "other")] += 1
            print(f"FOUND {kind} {whom}, points {first} to {tried.last} of {tried.count}", flush=True)
            traceback.print_exception(error)
    return tried.last >= first


if __name__ == "__main__":
    sys.exit(main())
