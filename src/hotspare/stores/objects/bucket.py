"""The object storage access of the store, by fsspec: writes whole objects, lists the current ones, and creates one exactly once.

`s3://bucket/prefix` takes options (`_OPTIONS`); `gs://` and `az://` take none. Their drivers are installed by the user and read the
environment.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import fsspec

from hotspare.base.errors import StoreError, UsageError
from hotspare.base.passwords import PASSWORD_ENV, PASSWORD_FILE, named_password
from hotspare.stores.limits import invalid_url, request_failed

_T = TypeVar("_T")
_R = TypeVar("_R")
CONCURRENT_CALLS_MAX = 8
_CONNECT_S, _CALL_S = 5, 30
_KEY = "access_key"
_OPTIONS = ("endpoint_url", "region", "profile", _KEY, PASSWORD_FILE, PASSWORD_ENV)
_FAILURES: tuple[type[Exception], ...] = (OSError, asyncio.TimeoutError)
KINDS: Mapping[str, str] = MappingProxyType({"s3": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az", "abfss": "az"})
"""The fsspec name of each scheme. Other file systems, for instance `sftp`, do not write objects as a whole."""


@dataclass(frozen=True, slots=True)
class ListedObject:
    """An object. `written_us`: when it was written by the storage's own clock; None if its driver does not report it."""

    size: int
    written_us: int | None


class Bucket:
    """Objects below the URL's prefix, by keys relative to it. Raises StoreError if the storage cannot be reached or refuses.

    Safe to use by several threads. Nothing is cached: `sizes` shows every object written before the call.
    """

    def __init__(self, url: str) -> None:
        """Raises UsageError if the URL names no object storage, or its driver is not installed."""
        parts = urlsplit(url)
        if parts.scheme not in KINDS or not parts.netloc or "@" in parts.netloc or parts.fragment:
            raise invalid_url("the object storage", "s3://bucket/prefix")
        self._root = f"{parts.netloc}/{parts.path.strip('/')}".rstrip("/")
        self._secret, settings = _settings(parts.scheme, parts.query)
        try:
            self._files: Any = fsspec.filesystem(KINDS[parts.scheme], **settings)
        except (ImportError, ValueError) as error:
            needed = f"snapshots in {parts.scheme}:// need its fsspec driver"
            hint = "pip install 'hotspare[s3]'" if parts.scheme == "s3" else "pip install gcsfs for gs://, adlfs for az://"
            raise UsageError(needed, detail=str(error)[:200], hint=hint) from None
        self._failures = _FAILURES + _failures_of(parts.scheme)

    def put_object(self, key: str, content: bytes) -> None:
        """Writes an object atomically: readers see the new content or the earlier one."""
        with self._as_store_error():
            self._files.pipe_file(self._path(key), content)

    def create(self, key: str, content: bytes) -> bool:
        """Compare-and-set: creates the object if it does not exist; returns whether this call did. The driver may repeat a request
        whose answer was lost, so False is possible even if this call created the object: read the content to decide."""
        with self._as_store_error():
            try:
                self._files.pipe_file(self._path(key), content, mode="create")
            except FileExistsError:
                return False
        return True

    def get_object(self, key: str) -> bytes | None:
        """Returns the content, None if the object is missing."""
        with self._as_store_error():
            try:
                return bytes(self._files.cat_file(self._path(key)))
            except FileNotFoundError:
                return None

    def sizes(self, folder: str) -> dict[str, int]:
        """Returns the sizes of all objects whose keys begin with `folder/`, by the rest of the key, in its order."""
        return {key: each.size for key, each in self.list_objects(folder).items()}

    def list_objects(self, folder: str) -> dict[str, ListedObject]:
        path = self._path(folder)
        with self._as_store_error():
            try:
                found = self._files.find(path, detail=True)
            except FileNotFoundError:
                return {}
        begin = len(path) + 1
        return {name[begin:]: _listed(about) for name, about in sorted(found.items()) if len(name) > begin}

    def delete(self, keys: Iterable[str]) -> None:
        """Deletes objects; no error for a missing one."""

        def delete(key: str) -> None:
            with self._as_store_error(), contextlib.suppress(FileNotFoundError):
                self._files.rm_file(self._path(key))

        self.call_concurrently(delete, keys)

    def call_concurrently(self, call: Callable[[_T], _R], arguments: Iterable[_T]) -> list[_R]:
        """Calls `call` with each argument, concurrently; returns the results in order. Raises the first error, after all calls have
        ended."""
        with ThreadPoolExecutor(CONCURRENT_CALLS_MAX, thread_name_prefix="hotspare-objects") as calls:
            futures = [calls.submit(call, argument) for argument in arguments]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]
        return [future.result() for future in futures]

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"

    @contextlib.contextmanager
    def _as_store_error(self) -> Iterator[None]:
        try:
            yield
        except (FileExistsError, FileNotFoundError) as error:
            raise StoreError("the bucket for snapshots does not exist", detail=self._plain(error)) from None
        except self._failures as error:
            raise request_failed("the object storage of snapshots", self._plain(error)) from None

    def _plain(self, error: Exception) -> str:
        """Returns the error in one line, without the secret."""
        said = " ".join(f"{type(error).__name__}: {error}".split())
        return (said.replace(self._secret, "***") if self._secret else said)[:300]


def _listed(about: Mapping[str, Any]) -> ListedObject:
    written = about.get("LastModified")
    return ListedObject(int(about["size"]), round(written.timestamp() * 1_000_000) if isinstance(written, datetime) else None)


def _settings(scheme: str, query: str) -> tuple[str, dict[str, Any]]:
    """Returns the secret ("" for none) and the arguments of the fsspec file system. Raises UsageError for an unknown option."""
    given = {name: values[-1] for name, values in parse_qs(query).items()}
    known = _OPTIONS if scheme == "s3" else ()
    for name in given:
        if name not in known:
            hint = f"known: {', '.join(known)}" if known else "configure its driver by environment variables"
            raise UsageError(f"option {name[:40]!r} of {scheme}:// snapshots is not known", hint=hint)
    settings: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
    if scheme != "s3":
        return "", settings
    secret = named_password(given)
    if bool(secret) != (_KEY in given):
        raise UsageError("an access key of s3:// snapshots needs its secret", hint=f"give {_KEY}= and {PASSWORD_ENV}=, or neither")
    client = {
        name: given[option] for name, option in (("endpoint_url", "endpoint_url"), ("region_name", "region")) if option in given
    }
    settings["config_kwargs"] = {"connect_timeout": _CONNECT_S, "read_timeout": _CALL_S, "retries": {"max_attempts": 1}}
    settings |= {"client_kwargs": client, "profile": given.get("profile")}
    if secret:
        settings |= {"key": given[_KEY], "secret": secret}
    return secret or "", settings


def _failures_of(scheme: str) -> tuple[type[Exception], ...]:
    """Returns the driver's exception types that do not derive from OSError; Exception for drivers that are not tested."""
    if scheme != "s3":
        return (Exception,)
    from aiohttp import ClientError
    from botocore import exceptions

    return exceptions.BotoCoreError, exceptions.ClientError, ClientError
