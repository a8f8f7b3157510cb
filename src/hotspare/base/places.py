"""Paths and URLs that users name, made absolute at the entry. The process that opens them may run in another folder: Spark's JVM,
an executor, or an engine that reads a fact of its group."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from urllib.parse import quote, unquote

from hotspare.base.errors import UsageError

_SQLITE = "sqlite:///"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_FILE = re.compile(r"file:(?://(?:localhost)?)?(/(?!/)[^?#]*)", re.IGNORECASE)
"""A `file:` URL without options: another notation of an absolute path."""
_RELATIVE_FILE = re.compile(r"file:(?!/)", re.IGNORECASE)
_OPTIONS = ("password_file", "key_file", "cache")
_OPTION_ENDINGS = (".location", ".keytab", ".file")
"""Endings of librdkafka's options that name a file, such as `ssl.ca.location`."""
_NO_PATHS = ("", "probe")
"""Values of those options that do not name a file."""


def absolute_path(path: Path | str, folder: Path | None = None) -> Path:
    """Returns the path; a relative one begins at `folder`. Without `folder` it begins at the current folder, and `~/` at
    the user's home, because shells expand `~` only at the start of a word. Symbolic links and `..` are not resolved."""
    if folder is not None:
        return folder / path
    given = Path(path)
    return (given.expanduser() if given.parts[:1] == ("~",) else given).absolute()


def absolute_url(url: str, folder: Path | None = None) -> str:
    """Returns the URL with absolute paths: the file of `sqlite:///FILE`, and files that options name. Any other URL is unchanged.

    Raises UsageError if the folder's name holds a question mark, which ends the path of a `sqlite:` URL.
    """
    base, question, query = url.partition("?")
    path = base.removeprefix(_SQLITE)
    if path != base and path and not path.startswith("/"):
        place = str(absolute_path(path, folder))
        if "?" in place:
            raise UsageError(f"file {place} cannot be named in a URL", hint="use a folder without a question mark in its name")
        base = f"{_SQLITE}{place}"
    return f"{base}{question}{'&'.join(_absolute_option(option, folder) for option in query.split('&'))}"


def _absolute_option(option: str, folder: Path | None) -> str:
    name, _, value = option.partition("=")
    if not is_relative_option(unquote(name), unquote(value)):
        return option
    return f"{name}={quote(str(absolute_path('', folder)))}/{value}"


def is_relative_option(name: str, value: str) -> bool:
    """Whether the value of an option, of a URL or of a Kafka client, is a relative path."""
    is_path = name in _OPTIONS or name.endswith(_OPTION_ENDINGS)
    return is_path and value not in _NO_PATHS and not value.startswith("/")


def absolute_path_or_url(text: str, folder: Path | None = None) -> str:
    """Returns a path or URL that does not depend on the current folder. A `file:` URL without options becomes its path, another
    URL the result of `absolute_url`, and any other text that of `absolute_path`; "" stays "".

    `folder`: the base of relative paths. Raises UsageError for a `file:` URL with a relative path.
    """
    if found := _FILE.fullmatch(text):
        return unquote(found[1])
    if _RELATIVE_FILE.match(text):
        raise UsageError(f"{text}: a URL of a file needs an absolute path", hint="give a path, or a URL file:///PATH")
    if not text or _SCHEME.match(text):
        return absolute_url(text, folder)
    return str(absolute_path(text, folder))


def local_file_path(place: str) -> Path:
    """Returns `place`, a result of `absolute_path_or_url`, as a path. Raises UsageError for a URL, which does not name a file of
    this machine."""
    if found := _SCHEME.match(place):
        raise UsageError(f"a {found[1]}: URL is not a file of this machine", hint="give a path, or a URL file:///PATH")
    return Path(place)


def user_folder(variable: str, default: str) -> Path:
    """Returns the folder `hotspare` below the folder that the XDG `variable` names. If the variable does not name an absolute
    path, it is below `default` in the user's home."""
    named = Path(os.environ.get(variable, ""))
    return (named if named.is_absolute() else Path.home() / default) / "hotspare"


def display_path(path: Path) -> str:
    """Returns the path relative to the current folder if it is below that folder, else unchanged."""
    with contextlib.suppress(ValueError, OSError):
        return str(path.relative_to(Path.cwd()))
    return str(path)


def named_path(url: str) -> Path | None:
    """Returns the file of a SQLite URL of a bus or coordination. None if the URL names none, or is invalid: opening it reports
    that."""
    path = url.removeprefix(_SQLITE).partition("?")[0] if url.startswith(_SQLITE) else ""
    return Path(path) if path else None


def has_named_file(url: str) -> bool:
    """Whether the file of `named_path` exists; true for a URL that does not name one."""
    path = named_path(url)
    return path is None or path.exists()
