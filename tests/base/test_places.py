"""Paths and URLs become absolute, and mean the same file in every folder."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import UsageError
from hotspare.base.places import absolute_path, absolute_path_or_url, absolute_url, display_path, local_file_path, user_folder
from hotspare.base.sqlite_file import parse_sqlite_url
from hotspare.host.restoring import store_url

HOME = Path("/h o/me")


@pytest.mark.parametrize(
    ("given_url", "url"),
    [
        ("", ""),
        ("sqlite:///x.db", "sqlite:////h o/me/x.db"),
        ("sqlite:///./a/x.db?busy_timeout_ms=3", "sqlite:////h o/me/a/x.db?busy_timeout_ms=3"),
        ("sqlite:////x.db", "sqlite:////x.db"),
        ("sqlite:///", "sqlite:///"),
        ("memory://x", "memory://x"),
        ("file:///a?key_file=k%20k", "file:///a?key_file=/h%20o/me/k%20k"),
        ("redis://h:1/0?password_file=/run/p", "redis://h:1/0?password_file=/run/p"),
        ("zookeeper://h/p?user=u&password_file=p", "zookeeper://h/p?user=u&password_file=/h%20o/me/p"),
        ("kafka://h:1/n?cache=c", "kafka://h:1/n?cache=/h%20o/me/c"),
        (
            "kafka://h:1?ssl.ca.location=a.pem&sasl.password=a%3Db&sasl.kerberos.keytab=k",
            "kafka://h:1?ssl.ca.location=/h%20o/me/a.pem&sasl.password=a%3Db&sasl.kerberos.keytab=/h%20o/me/k",
        ),
        ("kafka://h:1?ssl.ca.location=probe&ssl.ca.pem=x", "kafka://h:1?ssl.ca.location=probe&ssl.ca.pem=x"),
    ],
)
def test_a_url_with_its_paths(given_url: str, url: str) -> None:
    assert absolute_url(given_url, HOME) == url
    assert absolute_url(url) == url
    assert absolute_path_or_url(given_url, HOME) == url


NAMES = st.text(st.characters(exclude_characters="/?\0", codec="utf-8"), min_size=1).filter(lambda name: name not in (".", ".."))


@given(NAMES)
def test_the_file_of_a_bus_is_the_one_below_the_folder(name: str) -> None:
    assert parse_sqlite_url(absolute_url(f"sqlite:///{name}", HOME), 300)[0] == HOME / name
    assert absolute_path(name, HOME) == HOME / name


@pytest.mark.parametrize("place", ["tcp://:7000", "http://registry:8081", "s3a://bucket/x", "hdfs:/x", "file:///x?key_env=k", "/x"])
def test_a_place_that_is_absolute_stays(place: str) -> None:
    assert absolute_path_or_url(place, HOME) == place


@pytest.mark.parametrize("url", ["file:/a/b%20%23", "file:///a/b%20%23", "FILE://localhost/a/b%20%23"])
def test_a_url_of_a_file_is_its_path(url: str) -> None:
    assert absolute_path_or_url(url) == "/a/b #"
    assert local_file_path(absolute_path_or_url(url)) == Path("/a/b #")
    assert store_url(url) == "file:///a/b%20%23"


@pytest.mark.parametrize("place", ["file:in.csv", "FILE:./in.csv"])
def test_a_url_of_a_file_has_no_relative_path(place: str) -> None:
    with pytest.raises(UsageError, match="needs an absolute path"):
        absolute_path_or_url(place, HOME)


@pytest.mark.parametrize("place", ["s3://user:secret@bucket/x", "file://host/x", "hdfs:/x"])
def test_a_url_is_no_file_of_this_machine(place: str) -> None:
    with pytest.raises(UsageError, match=f"a {place.partition(':')[0]}: URL is not a file of this machine"):
        local_file_path(absolute_path_or_url(place))


def test_the_home_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shells do not expand it in the middle of a word, as in `--in q/w=~/in.csv`."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert absolute_path("~/in.csv") == tmp_path / "in.csv"
    assert absolute_path_or_url("~/in.csv") == str(tmp_path / "in.csv")
    assert absolute_url("sqlite:///~/b.db") == f"sqlite:///{tmp_path}/b.db"
    assert absolute_path("~in.csv") == Path.cwd() / "~in.csv"
    assert absolute_path("~/in.csv", HOME) == HOME / "~/in.csv"


def test_without_a_folder_paths_begin_at_the_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_path("a/../b") == tmp_path / "a/../b"
    assert absolute_path_or_url("in.parquet") == str(tmp_path / "in.parquet")
    assert unquote(absolute_url("file:///a?key_file=k")) == f"file:///a?key_file={tmp_path}/k"
    assert display_path(tmp_path / "a/b.csv") == "a/b.csv"
    assert display_path(tmp_path.parent / "b.csv") == str(tmp_path.parent / "b.csv")


def test_a_folder_whose_name_would_end_the_path_is_refused() -> None:
    with pytest.raises(UsageError, match=r"file /a\?b/x.db cannot be named in a URL"):
        absolute_url("sqlite:///x.db", Path("/a?b"))


@pytest.mark.parametrize(
    ("value", "folder"), [("", "/h/.cache/hotspare"), ("rel", "/h/.cache/hotspare"), ("/var/c", "/var/c/hotspare")]
)
def test_the_users_folders(monkeypatch: pytest.MonkeyPatch, value: str, folder: str) -> None:
    monkeypatch.setenv("HOME", "/h")
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert user_folder("XDG_CACHE_HOME", ".cache") == Path(folder)
