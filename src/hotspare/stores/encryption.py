"""Encrypts snapshots, so that a store sees only ciphertext.

AES in the SIV mode, by `cryptography`. Equal content under one key gives equal ciphertext, so unchanged content is still written
once. Changed content, or reading with another key, is detected. Each page is bound to its group and its name. The store still shows
names, sizes, times, and which pages changed.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from hotspare.base.errors import SnapshotDamaged, UsageError
from hotspare.stores import limits
from hotspare.stores.contract import Content, SnapshotInfo, Store, StoredSnapshot

KEY, KEY_FILE, KEY_ENV = "key", "key_file", "key_env"
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]{64,}")
_FORM = b"hotspare snapshot 1"
_BEGIN = b"\0"
"""The prefix of every content, because empty content cannot be encrypted."""
_HEADER = ""


def split_encryption_key(url: str) -> tuple[str, str]:
    """Returns (URL without the options for the key, key in hexadecimal). The URL names the key by file or environment variable;
    the key is "" if it names none. Raises UsageError if the key cannot be read. No message shows the key."""
    base, question, query = url.partition("?")
    rest, named = [], {}
    for option in query.split("&") if question else ():
        name, _, value = option.partition("=")
        if name == KEY:
            raise UsageError(
                "a key must not be in a URL, where others can read it",
                hint=f"name a file or variable with the key: {KEY_FILE}= or {KEY_ENV}=",
            )
        if name in (KEY_FILE, KEY_ENV):
            named[name] = unquote(value)
        else:
            rest.append(option)
    if not named:
        return url, ""
    if len(named) > 1:
        raise UsageError(f"{KEY_FILE} and {KEY_ENV} contradict each other", hint="leave one out")
    ((name, place),) = named.items()
    text = _from_file(place) if name == KEY_FILE else os.environ.get(place, "")
    if not _HEXADECIMAL.fullmatch(text.strip()):
        what = "file" if name == KEY_FILE else "variable"
        raise UsageError(f"{what} {place} holds no key", hint="write it as 64 hexadecimal digits or more: openssl rand -hex 64")
    return "?".join([base, "&".join(rest)] if rest else [base]), text.strip().lower()


def _from_file(place: str) -> str:
    try:
        return Path(place).read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise UsageError(f"key file {place} cannot be read", detail=error.strerror or str(error)) from error


class Cipher:
    """Encrypts and decrypts the named parts of a group's snapshots. Raises UsageError if `cryptography` is not installed."""

    def __init__(self, key: str) -> None:
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESSIV
        except ModuleNotFoundError as error:
            hint = "pip install 'hotspare[encryption]'"
            raise UsageError("encrypted snapshots need cryptography", detail=str(error), hint=hint) from None
        secret = bytes.fromhex(key[: len(key) // 2 * 2])
        self._siv = AESSIV(hashlib.blake2b(secret, person=b"hotspare siv", digest_size=64).digest())
        self._identity_key = hashlib.blake2b(secret, person=b"hotspare id", digest_size=32).digest()
        self._wrong: type[Exception] = InvalidTag

    def identity(self, of_store: str) -> str:
        """Returns the id of the store `of_store` under this key. Ids differ between keys, so engines with different keys count as
        users of different stores."""
        return hmac.new(self._identity_key, of_store.encode(), "sha256").hexdigest()[:32]

    def encrypt(self, content: bytes, group: str, name: str) -> bytes:
        return bytes(self._siv.encrypt(_BEGIN + content, _bound(group, name)))

    def decrypt(self, content: bytes, group: str, name: str) -> bytes:
        """Returns the decrypted content. Raises SnapshotDamaged unless it was encrypted for this group and name with this key."""
        try:
            return bytes(self._siv.decrypt(content, _bound(group, name))[len(_BEGIN) :])
        except (self._wrong, ValueError):
            raise SnapshotDamaged(
                f"{f'page {name}' if name else 'the header'} of a snapshot of group {group} cannot be decrypted",
                detail="it was changed, is encrypted with another key, or is not encrypted",
                hint="give the key that it was written with",
            ) from None


def _bound(group: str, name: str) -> list[bytes]:
    """Returns the associated data to which a ciphertext is bound: group, and page name or header."""
    return [_FORM, group.encode(), b"page " + name.encode() if name else b"header"]


@dataclass(frozen=True, slots=True)
class _CiphertextKey:
    """The store's key of a ciphertext, wrapped so that a store without encryption cannot mistake it for the key of a plaintext."""

    identity: str
    store_key: object


@dataclass(frozen=True, slots=True)
class _Encrypted:
    """A `Content` that is encrypted when it is encoded; its `store_key` is the key of the ciphertext."""

    content: Content
    cipher: Cipher
    group: str
    name: str

    @property
    def store_key(self) -> object:
        known = self.content.store_key
        return known.store_key if isinstance(known, _CiphertextKey) and known.identity == self.cipher.identity("") else None

    def set_store_key(self, known: object) -> None:
        self.content.set_store_key(_CiphertextKey(self.cipher.identity(""), known))

    def encode(self) -> bytes:
        return self.cipher.encrypt(self.content.encode(), self.group, self.name)


@dataclass(frozen=True, slots=True)
class _Decrypted(Mapping[str, bytes]):
    """The pages of a snapshot, decrypted on access."""

    pages: Mapping[str, bytes]
    cipher: Cipher
    group: str

    def __getitem__(self, page: str) -> bytes:
        return self.cipher.decrypt(self.pages[page], self.group, page)

    def store_key_of(self, page: str) -> object:
        known = getattr(self.pages, "store_key_of", None)
        return None if known is None else _CiphertextKey(self.cipher.identity(""), known(page))

    def prefetch_pages(self, pages: Sequence[str]) -> None:
        if (expect := getattr(self.pages, "prefetch_pages", None)) is not None:
            expect(pages)

    def __contains__(self, page: object) -> bool:
        return page in self.pages

    def __iter__(self) -> Iterator[str]:
        return iter(self.pages)

    def __len__(self) -> int:
        return len(self.pages)


class EncryptedStore:
    """A `Store` (contract) that stores encrypted snapshots in `store`; `close` closes that, too."""

    def __init__(self, store: Store, cipher: Cipher) -> None:
        self._store = store
        self._cipher = cipher

    def identity(self) -> str:
        return self._cipher.identity(self._store.identity())

    def write_candidate(
        self, group: str, name: str, engine: str, order: int, header: bytes, pages: Iterable[tuple[str, bytes | Content]]
    ) -> SnapshotInfo:
        return self._store.write_candidate(
            group, name, engine, order, self._cipher.encrypt(header, group, _HEADER), self._pages(group, pages)
        )

    def _pages(self, group: str, pages: Iterable[tuple[str, bytes | Content]]) -> Iterator[tuple[str, bytes | Content]]:
        for page, content in pages:
            limits.check_name("page", page)
            if isinstance(content, bytes):
                yield page, self._cipher.encrypt(content, group, page)
            else:
                yield page, _Encrypted(content, self._cipher, group, page)

    def confirm(self, group: str, name: str) -> None:
        self._store.confirm(group, name)

    def discard(self, group: str, name: str) -> None:
        self._store.discard(group, name)

    def list(self, group: str) -> Sequence[SnapshotInfo]:
        return self._store.list(group)

    def get(self, group: str, name: str) -> StoredSnapshot:
        stored = self._store.get(group, name)
        header = self._cipher.decrypt(stored.header, group, _HEADER)
        pages = _Decrypted(stored.pages, self._cipher, group)
        return StoredSnapshot(header, dict(pages) if isinstance(stored.pages, dict) else pages)

    def prune_snapshots(self, group: str, confirmed_max: int) -> None:
        self._store.prune_snapshots(group, confirmed_max)

    def discard_group(self, group: str) -> None:
        self._store.discard_group(group)

    def close(self) -> None:
        self._store.close()
