"""Schemas that messages identify by a number, as in frames of a schema registry (SPEC I2).

    0 | number of the schema, 4 bytes, big-endian | one Avro datum

A registry is requested over HTTP, `GET <url>/schemas/ids/<number>`, or a folder holds the schemas as files `<number>.avsc`. A
number never gets another schema, so up to 1,000 schemas are cached; an evicted one is requested again. An unknown number is
requested again after 5 s. A message with an unknown number stays unchanged, and the engine makes a bad event of it. A message
without a frame stays unchanged, too; an Avro container file is then decoded as usual. While a registry does not answer, the
publisher waits and makes no bad events.
"""

from __future__ import annotations

import base64
import json
import struct
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hotspare.base.errors import BusUnavailable, UsageError
from hotspare.formats.avro_datum import datum_container

_FRAME = struct.Struct(">BI")
_SCHEMA_BYTES_MAX = 1 << 20
_SCHEMAS_MAX = 1_000
"""Limit on the cached schemas; an evicted one is requested again."""
_TIMEOUT_S = 5.0
_UNKNOWN_S = 5.0
"""The time for which an unknown number is not requested again."""
_MISSING = 404


class Schemas(Protocol):
    def schema_text(self, number: int) -> str | None:
        """Returns the schema, Avro's as JSON; None for an unknown number. Raises BusUnavailable if the answer is unavailable
        now."""


def open_schemas(place: str) -> Schemas:
    """Opens the `http://` or `https://` URL of a registry, which may contain a user and a password, or a folder. Raises UsageError
    for any other text."""
    if place.startswith(("http://", "https://")):
        return SchemaRegistry(place)
    if "://" in place or not Path(place).is_dir():
        hint = "name the http:// or https:// URL of a registry, or a folder with files such as 17.avsc"
        raise UsageError(f"{_without_user(place)}: not a source of schemas", hint=hint)
    return SchemaFolder(Path(place))


@dataclass(frozen=True, slots=True)
class SchemaFolder:
    """Schemas in files `<number>.avsc`."""

    folder: Path

    def schema_text(self, number: int) -> str | None:
        file = self.folder / f"{number}.avsc"
        try:
            return file.read_text(encoding="utf-8") if file.stat().st_size <= _SCHEMA_BYTES_MAX else None
        except (FileNotFoundError, UnicodeDecodeError):
            return None
        except OSError as error:
            raise BusUnavailable(f"schema {file} cannot be read", detail=str(error)) from error


class SchemaRegistry:
    """A schema registry. `url` may contain secrets, which error messages do not show."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        self._shown = _without_user(url)
        self._url = self._shown.rstrip("/")
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if parts.username is not None:
            user = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"

    def schema_text(self, number: int) -> str | None:
        request = urllib.request.Request(f"{self._url}/schemas/ids/{number}", headers=self._headers)  # noqa: S310 - `open_schemas`
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
                body = answer.read(_SCHEMA_BYTES_MAX + 1)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == _MISSING:
                return None
            raise BusUnavailable(
                f"the schema registry {self._shown} answered the request for schema {number} with status {error.code}"
            ) from None
        except (OSError, ValueError) as error:
            raise BusUnavailable(f"the schema registry {self._shown} did not answer", detail=str(error)) from None
        return _avro_of(body)


def _avro_of(body: bytes) -> str | None:
    """Returns the schema in a registry's answer; None if it is not an Avro schema."""
    try:
        found = json.loads(body)
    except ValueError:
        return None
    if not isinstance(found, dict) or found.get("schemaType", "AVRO") != "AVRO" or not isinstance(found.get("schema"), str):
        return None
    return str(found["schema"])


def _without_user(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])) if parts.netloc else url


@dataclass(slots=True)
class FramedAvro:
    """Converts messages that begin with the number of their schema to container files, which contain their schema."""

    schemas: Schemas
    clock_s: Callable[[], float] = time.monotonic
    _container_makers: dict[int, Callable[[bytes], bytes]] = field(default_factory=dict)
    _unknown_s: dict[int, float] = field(default_factory=dict)
    """The time at which a number was found to be unknown."""

    def to_container(self, value: bytes) -> bytes:
        """Returns a framed message as a container file. Returns `value` unchanged if it has no frame or its schema is unknown.
        Raises BusUnavailable if the schema is unavailable now."""
        if len(value) < _FRAME.size:
            return value
        zero, number = _FRAME.unpack_from(value)
        made = self._find_maker(number) if zero == 0 else None
        return value if made is None else made(value[_FRAME.size :])

    def _find_maker(self, number: int) -> Callable[[bytes], bytes] | None:
        if number in self._container_makers:
            return self._container_makers[number]
        if self.clock_s() - self._unknown_s.get(number, float("-inf")) < _UNKNOWN_S:
            return None
        text, made = self.schemas.schema_text(number), None
        if text is not None:
            try:
                made = datum_container(text)
            except UsageError:
                made = None
        self._cache_maker(number, made)
        return made

    def _cache_maker(self, number: int, made: Callable[[bytes], bytes] | None) -> None:
        notes: dict[int, Callable[[bytes], bytes]] | dict[int, float] = (
            self._container_makers if made is not None else self._unknown_s
        )
        if len(notes) >= _SCHEMAS_MAX:
            del notes[next(iter(notes))]
        if made is not None:
            self._container_makers[number] = made
        else:
            self._unknown_s[number] = self.clock_s()
