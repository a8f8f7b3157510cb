"""Publishes the events of a generator, each step exactly once, even if the publisher is killed (SPEC I11, I13).

With the rows of a step the bus writes the number of published steps, the time at which the first one was due, and the generator's
state. A successor continues after the last step, on the first publisher's schedule: it makes up for steps that fell due meanwhile.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from hotspare.adapters.failover.bus_retries import BusRetries, StopRequested
from hotspare.adapters.failover.spread_source import SpreadSource
from hotspare.adapters.files.row_blocks import build_pieces, topic_partitions
from hotspare.adapters.files.row_routing import RowRouting
from hotspare.adapters.generated.steps import GENERATOR_STATE_BYTES_MAX, GeneratedPosition, Generator, StepOutcome
from hotspare.base.errors import BusError, UsageError
from hotspare.bus.contract import Bus, Partition

_FORMAT = b"csv"
_ROWS_PER_MESSAGE = 256
_APPEND_ROWS_MAX = 4096
_APPEND_STEPS_MAX = 1000
_WAIT_S_MAX = 3600.0


def publish_generated(
    bus: Bus,
    partition: Partition,
    name: str,
    make: Callable[[], Generator],
    stop: threading.Event,
    troubled: Callable[[BusError], None] = lambda error: None,
    routing: RowRouting | None = None,
    clock_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    report: Callable[[int], None] = lambda rows: None,
) -> GeneratedPosition:
    """Publishes until the generator is done, or `stop`. `make` returns a new generator. With `routing` each row goes to the
    partition of the topic that it belongs in, else all go to `partition`. `report` gets the number of rows of each append.

    Raises UsageError if a step cannot be made; BusError if the bus stays unreachable, which `troubled` gets before.
    """
    source = SpreadSource(bus, topic_partitions(partition, routing), name)
    publication = _Publication(source, name, make, stop, BusRetries(stop, troubled), routing, clock_us, report)
    with contextlib.suppress(StopRequested):
        publication.run()
    return publication.position


class _Publication:
    """A call of `publish_generated`: its arguments and the running generator. `position` is the newest position that is known
    to be published."""

    def __init__(
        self,
        source: SpreadSource,
        name: str,
        make: Callable[[], Generator],
        stop: threading.Event,
        retried: BusRetries,
        routing: RowRouting | None,
        clock_us: Callable[[], int],
        report: Callable[[int], None],
    ) -> None:
        self._source = source
        self._name = name
        self._make = make
        self._stop = stop
        self._retried = retried
        self._routing = routing
        self._clock_us = clock_us
        self._report = report
        self._generator = make()
        self.position = GeneratedPosition()

    def run(self) -> None:
        self._resume()
        while not self._stop.is_set() and not self.position.is_done:
            wait_s = (self._due_us(self.position.steps) - self._clock_us()) / 1e6
            if wait_s > 0:
                self._stop.wait(min(wait_s, _WAIT_S_MAX))
            elif not self._publish():
                self._resume()

    def _resume(self) -> None:
        """Continues at the position that the bus has recorded."""
        found = GeneratedPosition.from_source_position(self._retried(self._source.read_source_position), self._name)
        self._generator = self._make()
        self.position = found if found.steps else replace(found, began_us=self._clock_us())
        self._generator.resume(self.position)

    def _due_us(self, step: int) -> int:
        return self.position.began_us + self._generator.due_us(step)

    def _publish(self) -> bool:
        """Makes due steps, within the limits of one append, and appends their rows. Returns False if the topic holds more of the
        source than this object knows, or no answer arrived."""
        first, rows, ends, course = self.position.steps, list[bytes](), list[int](), StepOutcome.GOES_ON
        steps, now_us = first, self._clock_us()
        while course is StepOutcome.GOES_ON and len(rows) < _APPEND_ROWS_MAX and steps - first < _APPEND_STEPS_MAX:
            if self._due_us(steps) > now_us:
                break
            step = self._generator.next_step()
            steps, course = steps + 1, step.step_outcome
            rows += step.rows
            ends += [steps] * len(step.rows)
        done = replace(
            self.position,
            steps=steps,
            events=self.position.events + len(rows),
            is_done=course is StepOutcome.DONE,
            generator_state=self._checked_state(),
        )
        if rows or done.is_done:
            found = build_pieces(rows, ends, self._routing, self._source.is_unpublished, _ROWS_PER_MESSAGE)
            if not self._retried.try_append(lambda: self._source.append(found, done.to_source_position(), _FORMAT)):
                return False
            self._report(len(rows))
        self.position = done
        return True

    def _checked_state(self) -> str:
        kept = self._generator.save_state()
        if len(kept.encode()) > GENERATOR_STATE_BYTES_MAX:
            size = f"{len(kept.encode())} bytes between two steps; the limit is {GENERATOR_STATE_BYTES_MAX}"
            raise UsageError(f"source {self._name} keeps {size}", hint="keep less in the variables of its code")
        return kept
