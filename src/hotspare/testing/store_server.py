"""The common base of test servers for snapshot stores: each has a folder and a URL, and is checked by a request to the store.
A server ends when the process that started it ends, also after `kill -9`. It can be killed, frozen, and started again on the same
data and port.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from hotspare.base.errors import ClusterError, StoreError
from hotspare.stores.open import open_store
from hotspare.testing.server_process import ServerProcess

START_TIMEOUT_S = 120.0
_POLL_S = 0.05


class StoreServer:
    """A server of a snapshot store. `url` does not change when the server is killed and restarted. `close` kills the server and
    removes `folder`."""

    def __init__(self, process: ServerProcess, folder: Path, url: str, password: str) -> None:
        """Starts the server and waits until it answers. Raises ClusterError if it does not."""
        self.process, self.url, self.password = process, url, password
        self._folder = folder
        self.restart()

    def restart(self) -> None:
        self.process.launch()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if time.monotonic() > deadline or not self.process.is_running:
                raise ClusterError(f"{self.process.name} did not start", detail=self.process.log_tail())
            time.sleep(_POLL_S)

    def _answers(self) -> bool:
        store = open_store(self.url)
        try:
            store.identity()
        except StoreError:
            return False
        finally:
            store.close()
        return True

    def close(self) -> None:
        self.process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
