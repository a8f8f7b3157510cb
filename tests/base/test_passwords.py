"""A password is read from the place that a URL names, alike for every server."""

from pathlib import Path

import pytest

from hotspare.base.errors import UsageError
from hotspare.base.passwords import named_password, password_alone
from hotspare.coordination.zookeeper.url import parse_zookeeper_url


def test_only_the_end_of_the_line_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text(" with blanks \r\n")
    monkeypatch.setenv("SECRET", " with blanks ")
    for options in ({"password_file": f"{tmp_path}/secret"}, {"password_env": "SECRET"}):
        assert named_password(options) == password_alone(options, "a store") == " with blanks "
        (name, value), *_ = options.items()
        assert parse_zookeeper_url(f"zookeeper://a?user=u&{name}={value}").password == " with blanks "


def test_what_is_not_there_is_told_without_what_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SECRET", raising=False)
    (tmp_path / "bytes").write_bytes(b"secret\xff")
    for options in ({"password_file": f"{tmp_path}/none"}, {"password_file": f"{tmp_path}/bytes"}, {"password_env": "SECRET"}):
        with pytest.raises(UsageError, match="password_") as told:
            named_password(options)
        assert "secret" not in str(told.value)


def test_a_store_takes_no_other_option() -> None:
    assert password_alone({}, "a store") is None
    with pytest.raises(UsageError, match="option 'pasword_file' of a store is not known"):
        password_alone({"pasword_file": "x"}, "a store")
