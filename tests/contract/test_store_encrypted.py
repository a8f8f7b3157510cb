"""Encrypted snapshots: what the store shows, which damage is detected, and which pages are still written once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hotspare.base.choices import OtherStore
from hotspare.base.errors import SnapshotDamaged, StateError, UsageError
from hotspare.coordination.memory import MemoryCoordination
from hotspare.ha.effects.store_agreement import agree_on_store
from hotspare.stores import encryption
from hotspare.stores.contract import Store
from hotspare.stores.encryption import Cipher, EncryptedStore, split_encryption_key
from hotspare.stores.memory import MemoryStore
from hotspare.stores.open import open_store
from tests.contract.material import Page

pytest.importorskip("cryptography", reason="the extra `encryption` is not installed")

KEY, OTHER_KEY = "0123456789abcdef" * 8, "fedcba9876543210" * 8
SECRET = b"account 4711" * 50
PAGES = {"q/w#0": SECRET, "q/w#1": b"", "q/ü v#0/rows/0": bytes(range(256)) * 40}


@pytest.fixture(params=["file", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store that is encrypted with the key in a file."""
    (tmp_path / "key").write_text(KEY + "\n")
    place = (tmp_path / "s").as_uri() if request.param == "file" else f"sqlite:///{tmp_path}/s.db"
    return f"{place}?key_file={tmp_path}/key"


def put(store: Store, name: str = "one", group: str = "g") -> None:
    store.write_candidate(group, name, "e", 1, b"header with account 4711", PAGES.items())


def test_what_was_put_comes_back_and_the_disk_holds_nothing_of_it(url: str, tmp_path: Path) -> None:
    store = open_store(url)
    put(store)
    store.confirm("g", "one")
    found = store.get("g", "one")
    assert (found.header, dict(found.pages)) == (b"header with account 4711", PAGES)
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != "key")
    assert len(written) > 10_000
    assert b"4711" not in written
    assert bytes(range(64)) not in written
    store.close()


def test_with_another_key_or_none_nothing_can_be_read(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(open_store(url))
    monkeypatch.setenv("OTHER", OTHER_KEY)
    with pytest.raises(SnapshotDamaged, match="the header of a snapshot of group g cannot be decrypted"):
        open_store(url.partition("?")[0] + "?key_env=OTHER").get("g", "one")
    assert b"4711" not in open_store(url.partition("?")[0]).get("g", "one").header


@pytest.mark.parametrize("what", ["changed", "under another name", "of another group", "cut"])
def test_content_that_is_not_what_was_encrypted_there_is_damage(what: str) -> None:
    """The checksums of the underlying store are right: an attacker with write access can compute them."""
    cipher, below = Cipher(KEY), MemoryStore()
    put(EncryptedStore(below, cipher))
    stored = below.get("g", "one")
    pages, group = dict(stored.pages), "g"
    if what == "changed":
        pages["q/w#0"] = pages["q/w#0"][:-1] + b"!"
    elif what == "under another name":
        pages["q/w#0"], pages["q/w#1"] = pages["q/w#1"], pages["q/w#0"]
    elif what == "cut":
        pages["q/w#0"] = pages["q/w#0"][:8]
    else:
        group = "h"
    below.write_candidate(group, "two", "e", 2, stored.header, pages.items())
    with pytest.raises(SnapshotDamaged):
        EncryptedStore(below, cipher).get(group, "two")


def test_a_page_that_is_the_same_is_written_once(url: str, tmp_path: Path) -> None:
    """Equal content gives equal ciphertext, and a known page is not even encrypted again."""
    store, page = open_store(url), Page(SECRET)
    store.write_candidate("g", "one", "e", 1, b"1", [("p", page)])
    store.write_candidate("g", "two", "e", 2, b"2", [("p", page)])
    assert page.encoded == 1
    assert store.get("g", "two").pages["p"] == SECRET
    if url.startswith("file"):
        before = sum(path.stat().st_size for path in tmp_path.rglob("*"))
        store.write_candidate("g", "three", "e", 3, b"3", [("p", SECRET)])
        assert sum(path.stat().st_size for path in tmp_path.rglob("*")) - before < 2 * len(SECRET)
        assert Cipher(KEY).encrypt(SECRET, "g", "p") == Cipher(KEY).encrypt(SECRET, "g", "p")


def test_an_engine_with_another_key_is_refused_like_one_with_another_store() -> None:
    """It would find no readable snapshot, and start from nothing."""
    below, coordination = MemoryStore(), MemoryCoordination().client("a")
    first, second = (EncryptedStore(below, Cipher(key)) for key in (KEY, OTHER_KEY))
    agree_on_store(coordination, first, "g", OtherStore.REFUSE)
    agree_on_store(coordination, EncryptedStore(below, Cipher(KEY)), "g", OtherStore.REFUSE)
    for wrong in (second, below):
        with pytest.raises(StateError, match="keeps its snapshots in another store") as error:
            agree_on_store(coordination, wrong, "g", OtherStore.REFUSE)
        assert "key" in error.value.hint


def refusals(folder: Path) -> dict[str, Callable[[], str]]:
    (folder / "short").write_text("0123")
    return {
        "holds no key": lambda: f"?key_file={folder}/short",
        "cannot be read": lambda: f"?key_file={folder}/none",
        "variable NONE holds no key": lambda: "?key_env=NONE",
        "must not be in a URL": lambda: f"?key={KEY}",
        "contradict each other": lambda: f"?key_env=A&key_file={folder}/short",
    }


@pytest.mark.parametrize(
    "words", ["holds no key", "cannot be read", "variable NONE holds no key", "must not be in a URL", "contradict each other"]
)
def test_a_key_that_cannot_be_had_is_refused_and_never_shown(words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words) as error:
        open_store(f"file://{tmp_path}/s" + refusals(tmp_path)[words]())
    assert KEY not in str(error.value)
    assert "0123" not in str(error.value)


def test_the_rest_of_a_url_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    for base in ("sqlite:///rel.db", "sqlite:////abs/s.db", "postgresql://u:p@h:1/d"):
        assert split_encryption_key(f"{base}?a=b&key_file={tmp_path}/key&c=d") == (f"{base}?a=b&c=d", KEY)
        assert split_encryption_key(f"{base}?key_file={tmp_path}/key") == (base, KEY)
        assert split_encryption_key(base) == (base, "")
    assert encryption.KEY_FILE == "key_file"
