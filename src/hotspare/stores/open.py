"""Opens a snapshot store by its URL: `file:///folder`, `postgresql://user@host/database` and other databases
(`stores.sql.database`), `redis://host:6379/0`, `s3://bucket/prefix` (`stores.objects.bucket`), or `memory://name` (within one
process)."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from hotspare.base.errors import UsageError
from hotspare.stores.contract import Access, Store
from hotspare.stores.directory import DirectoryStore
from hotspare.stores.encryption import KEY_ENV, KEY_FILE, Cipher, EncryptedStore, split_encryption_key
from hotspare.stores.limits import invalid_url
from hotspare.stores.memory import MemoryStore
from hotspare.stores.settings import DEFAULT, StoreSettings

FOLDER_SUFFIX = "-snapshots"
_DATABASES = ("postgresql", "mariadb", "mysql", "sqlite", "oracle", "mssql")
_OBJECTS = ("s3", "gs", "gcs", "az", "abfs", "abfss")
_FORMS = "file:///folder, s3://bucket/prefix, redis://host:6379/0 or postgresql://user@host/database"
_SHARED: dict[str, MemoryStore] = {}


def open_store(url: str, access: Access = Access.CHANGE, settings: StoreSettings = DEFAULT) -> Store:
    """Returns the store at `url`. Raises UsageError for an unknown URL. Creates a missing folder unless `access` is LOOK; percent
    escapes in its name are decoded. With the option `key_file=` or `key_env=` all content is encrypted (`encryption.py`)."""
    try:
        urlsplit(url)
    except ValueError:
        raise invalid_url("a snapshot store", _FORMS) from None
    url, key = split_encryption_key(url)
    store = _opened(url, access, settings)
    return EncryptedStore(store, Cipher(key)) if key else store


def open_existing_store(url: str, access: Access = Access.LOOK) -> Store:
    """Returns the store at `url`, as `open_store` does. Raises UsageError also if the URL names a folder or file that does not
    exist. So a misspelled name or an unmounted file system creates none."""
    if not may_store_exist(url):
        what = f"there is no {'folder' if url.startswith('file:') else 'file'} {_place(url)}"
        raise UsageError(f"no snapshot store at {url}", detail=what, hint="check the name, and that its file system is mounted")
    return open_store(url, access)


def may_store_exist(url: str) -> bool:
    """Whether the folder or file that the URL names exists; True for a server, which is not queried."""
    place = _place(url)
    try:
        return place is None or place.exists()
    except OSError:  # opening it reports the reason
        return True


def _place(url: str) -> Path | None:
    """Returns the folder or file of the store if it is on this machine, else None. UsageError as `open_store`."""
    scheme, separator, rest = url.partition("?")[0].partition("://")
    if separator and scheme == "file":
        return _folder(rest)
    file = Path(unquote(rest.removeprefix("/")))
    return file if separator and scheme == "sqlite" and file.is_absolute() else None


def _opened(url: str, access: Access, settings: StoreSettings) -> Store:
    scheme, separator, rest = url.partition("://")
    if separator and scheme == "memory" and rest:
        return _SHARED.setdefault(rest, MemoryStore())
    if separator and scheme == "file":
        return DirectoryStore(_folder(rest), access, settings)
    if separator and scheme in _DATABASES:
        return _sql_store(url, access, settings)
    if separator and scheme in ("redis", "rediss"):
        return _redis_store(url, access, settings)
    if separator and scheme in _OBJECTS:
        return _object_store(url, access, settings)
    if separator and scheme == "kafka":
        from hotspare.stores.changelog.store import ChangelogStore

        return ChangelogStore(url, access, settings)
    raise UsageError(f"{scheme[:20]!r} is not a kind of snapshot store", hint=f"write {_FORMS}")


def _folder(rest: str) -> Path:
    """Returns the folder named after `file://`. Raises UsageError for any option, because it might be a misspelled one for a
    key."""
    host, slash, path = rest.partition("/")
    if host not in ("", "localhost") or not path or "\0" in unquote(path):
        raise UsageError("file:// needs an absolute folder", hint="write file:///folder")
    if "?" in path or "#" in path:
        raise UsageError(
            "file:// accepts only the options for a key",
            hint=f"use {KEY_FILE} or {KEY_ENV}; in a folder's name write %3F for a question mark and %23 for a number sign",
        )
    return Path(unquote(slash + path))


def _sql_store(url: str, access: Access, settings: StoreSettings) -> Store:
    try:
        from hotspare.stores.sql.store import SqlStore
    except ModuleNotFoundError as error:
        raise UsageError("snapshots in a database need SQLAlchemy", detail=str(error), hint="pip install 'hotspare[sql]'") from None
    return SqlStore(url, access, settings)


def _redis_store(url: str, access: Access, settings: StoreSettings) -> Store:
    try:
        from hotspare.stores.redis.store import RedisStore
    except ModuleNotFoundError as error:
        raise UsageError("snapshots in Redis need its client", detail=str(error), hint="pip install 'hotspare[redis]'") from None
    return RedisStore(url, access, settings)


def _object_store(url: str, access: Access, settings: StoreSettings) -> Store:
    try:
        from hotspare.stores.objects.store import ObjectStore
    except ModuleNotFoundError as error:
        raise UsageError("snapshots in object storage need fsspec", detail=str(error), hint="pip install 'hotspare[s3]'") from None
    return ObjectStore(url, access, settings)


def default_store_url(bus_url: str) -> str:
    """Returns the URL of the default store: a folder next to a bus that is a file, or the URL of a named bus in memory itself.
    Raises UsageError for a bus on a server."""
    if found := bus_store_url(bus_url):
        return found
    raise UsageError("this bus has no snapshot store of its own", hint="give --store URL")


def bus_store_url(bus_url: str) -> str:
    """Returns the URL of the default store of a bus; "" if the bus is neither a file nor named and in memory."""
    scheme, separator, rest = bus_url.partition("://")
    if separator and scheme == "memory" and rest:
        return bus_url
    path = rest.partition("?")[0].removeprefix("/")
    if separator and scheme == "sqlite" and path:
        return Path(path + FOLDER_SUFFIX).absolute().as_uri()
    return ""
