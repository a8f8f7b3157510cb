"""Option values that several commands share: parsed, or refused with the option's name and the right form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hotspare.base.errors import UsageError
from hotspare.cli.shared.values import WindowPath, parse_assignments, parse_bindings, parse_properties, topic_prefix, window_path
from tests.cli.running import hotspare_here


def test_properties_keep_everything_after_the_first_sign() -> None:
    assert parse_properties(["A=1", "B=x=y", "A=", " C = 3"]) == {"A": "", "B": "x=y", "C": " 3"}


def test_bindings_are_per_connector() -> None:
    assert parse_bindings(["c:fsname=/a:b", "q/w/d:rate=1", "c:rate=2"]) == {
        "c": {"fsname": "/a:b", "rate": "2"},
        "q/w/d": {"rate": "1"},
    }


def test_windows_are_assigned_once() -> None:
    assert parse_assignments(["q/w=a=b.csv"], "--in", "FILE") == {"q/w": "a=b.csv"}


def test_window_path() -> None:
    assert window_path("p/q/w") == WindowPath("p", "q", "w")


@pytest.mark.parametrize(
    ("read", "texts", "named"),
    [
        (parse_properties, ["A"], "--set"),
        (parse_properties, ["=1"], "--set"),
        (parse_bindings, ["rate=1"], "--bind"),
        (parse_bindings, ["c:rate"], "--bind"),
        (lambda texts: parse_assignments(texts, "--in", "FILE"), ["w=f"], "--in"),
        (lambda texts: parse_assignments(texts, "--in", "FILE"), ["q/w="], "--in"),
        (lambda texts: parse_assignments(texts, "--in", "FILE"), ["q/w=a", "q/w=b"], "--in"),
        (lambda texts: window_path(texts[0]), ["q/w"], "--window"),
        (lambda texts: window_path(texts[0]), ["p/q/w w"], "name"),
    ],
)
def test_a_mistake_names_the_option(read: Callable[[Sequence[str]], object], texts: list[str], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        read(texts)


@pytest.mark.parametrize("command", [("run", "p.yaml", "--bus", "sqlite:///b.db"), ("replay", "p.yaml")])
def test_a_page_folder_without_a_budget_is_refused(command: tuple[str, ...], tmp_path: Path) -> None:
    done = hotspare_here(*command, "--page-folder", tmp_path)
    assert done.returncode == 2
    assert "--page-folder without --memory has no effect" in done.stderr
    assert "give --memory SIZE" in done.stderr


@pytest.mark.parametrize("url", ["dfESP://host/shop/q/all", "dfESP://host:x/shop/q/all", "dfESP://:1/shop/q/all", "dfESP://"])
def test_a_url_without_host_and_port_is_refused_with_the_form_of_one_b2(url: str) -> None:
    for read in (window_path, lambda text: topic_prefix(text, "hotspare")):
        with pytest.raises(UsageError) as caught:
            read(url)
        assert "dfESP://HOST:PORT/PROJECT/CQ/WINDOW" in caught.value.hint
