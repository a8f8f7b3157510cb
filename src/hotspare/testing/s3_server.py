"""A substitute for S3 in tests: moto's server on the loopback interface, with persistence. Each changing request is stored on disk
before it is answered, and is replayed when the server starts again.

    python -m hotspare.testing.s3_server PORT FOLDER

It accepts any key and secret. While `FOLDER/full` exists, it answers writes with an error: insufficient storage.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hotspare.testing.server_process import ServerProcess, free_ports
from hotspare.testing.store_server import StoreServer

_BUCKET = "snapshots"
_KEY, _SECRET = "hotspare", "not-a-secret"
SECRET_ENV = "HOTSPARE_TEST_S3_SECRET"  # noqa: S105
_FULL = "full"
_SAVED_KEYS = (
    "REQUEST_METHOD",
    "PATH_INFO",
    "QUERY_STRING",
    "RAW_URI",
    "REQUEST_URI",
    "CONTENT_TYPE",
    "CONTENT_LENGTH",
)
_Start = Callable[..., Any]


class S3Server(StoreServer):
    """A server with one bucket. The environment of this process has the secret of its URL (variable `SECRET_ENV`)."""

    def __init__(self) -> None:
        """Starts the server and waits until it answers. Raises ClusterError if it does not."""
        self.folder = Path(tempfile.mkdtemp(prefix="hotspare-s3-"))
        port = free_ports(1)[0]
        os.environ[SECRET_ENV] = _SECRET
        command = [sys.executable, "-m", "hotspare.testing.s3_server", str(port), str(self.folder)]
        self.endpoint = f"http://127.0.0.1:{port}"
        url = f"s3://{_BUCKET}/shots?endpoint_url={self.endpoint}&region=us-east-1&access_key={_KEY}&password_env={SECRET_ENV}"
        super().__init__(ServerProcess("s3", command, self.folder), self.folder, url, _SECRET)

    def fill(self) -> None:
        """Makes the server answer all writes with insufficient storage, until `clear`."""
        (self.folder / _FULL).touch()

    def clear(self) -> None:
        """Makes the server accept writes again after `fill`."""
        (self.folder / _FULL).unlink()


class _PersistentApp:
    """A WSGI application that stores changing requests in a file and replays them at the start. It handles one request at a
    time."""

    def __init__(self, inner: Any, folder: Path) -> None:
        self._inner, self._full = inner, folder / _FULL
        path = folder / "requests"
        if path.exists():
            self._replay_requests(path)
        self._file = path.open("ab")
        self._turn = threading.Lock()

    def __call__(self, environ: dict[str, Any], start: _Start) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        changes = environ["REQUEST_METHOD"] in ("PUT", "POST", "DELETE")
        if environ["REQUEST_METHOD"] == "PUT" and self._full.exists():
            start("507 Insufficient Storage", [("Content-Type", "application/xml")])
            return [b"<Error><Code>InsufficientStorage</Code><Message>no room</Message></Error>"]
        with self._turn:
            status, headers, answer = self._call_inner(environ, body)
            if changes and status.startswith("2"):
                pickle.dump((_saved_environ(environ), body), self._file)
                self._file.flush()
                os.fsync(self._file.fileno())
        start(status, headers)
        return [answer]

    def _call_inner(self, environ: dict[str, Any], body: bytes) -> tuple[str, list[tuple[str, str]], bytes]:
        told: list[Any] = []
        answer = b"".join(self._inner({**environ, "wsgi.input": io.BytesIO(body)}, lambda *said: told.extend(said[:2])))
        return told[0], told[1], answer

    def _replay_requests(self, path: Path) -> None:
        whole = 0
        with path.open("rb") as file:
            while True:
                try:
                    environ, body = pickle.load(file)  # noqa: S301 - our own file
                except (EOFError, pickle.UnpicklingError):
                    break
                self._call_inner({**environ, "wsgi.errors": sys.stderr, "wsgi.url_scheme": "http"}, body)
                whole = file.tell()
        os.truncate(path, whole)


def _saved_environ(environ: dict[str, Any]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name in _SAVED_KEYS or name.startswith(("HTTP_", "SERVER_"))}


def serve(port: int, folder: Path) -> None:
    """Creates the bucket and serves requests on `port` until the process ends."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, run_simple

    class Handler(WSGIRequestHandler):  # type: ignore[misc]
        protocol_version = "HTTP/1.1"

        def log_request(self, *_: object) -> None:
            """Logs nothing."""

    kept = _PersistentApp(DomainDispatcherApplication(create_backend_app), folder)
    made = {"REQUEST_METHOD": "PUT", "PATH_INFO": f"/{_BUCKET}", "SERVER_NAME": "127.0.0.1", "SERVER_PORT": str(port)}
    made |= {"HTTP_HOST": f"127.0.0.1:{port}", "wsgi.url_scheme": "http", "QUERY_STRING": "", "CONTENT_LENGTH": "0"}
    kept({**made, "wsgi.input": io.BytesIO(), "wsgi.errors": sys.stderr}, lambda *_: None)
    run_simple("127.0.0.1", port, kept, threaded=True, request_handler=Handler)


if __name__ == "__main__":
    serve(int(sys.argv[1]), Path(sys.argv[2]))
