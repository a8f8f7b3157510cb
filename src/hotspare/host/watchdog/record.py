"""Records one attempt in coordination: `python -m hotspare.host.watchdog.record`, with a JSON document on standard input.

A process of its own, because a watcher that loaded a client of coordination would keep its memory for ever. Standard input,
because URLs may contain passwords, which a command line would show. The exit status is 0 if the attempt is recorded; otherwise
standard output has the reason.
"""

from __future__ import annotations

import json
import sys

from hotspare.base.call_place import CallAttempt
from hotspare.base.errors import HotspareError, is_retryable
from hotspare.base.retry import Retry
from hotspare.coordination.open import open_coordination
from hotspare.telemetry.secrets import masked

_RETRY = Retry(lasting_s=60.0, pause_s=0.05, pause_max_s=0.5)
"""The caller ends this process earlier."""


def record(url: str, group: str, attempt: CallAttempt) -> None:
    """Stores the attempt as a fact of the group. Retries while coordination is locked or does not answer."""

    def store() -> None:
        coordination = open_coordination(url)
        try:
            coordination.set_fact_once(group, attempt.fact_name, attempt.to_bytes())
        finally:
            coordination.close()

    _RETRY.call(store, is_retryable)


def main() -> int:
    given = json.load(sys.stdin)
    attempt = CallAttempt.from_bytes(json.dumps(given["attempt"]).encode())
    if attempt is None:
        sys.stdout.write("the attempt cannot be parsed")
        return 1
    try:
        record(given["coordination"], given["group"], attempt)
    except HotspareError as error:
        sys.stdout.write(masked(error.message))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
