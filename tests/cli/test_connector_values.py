"""Invalid values of connectors are errors of the project: reported when it is loaded, not when an engine becomes active."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import hotspare_here

PROJECT = """
project: shop
queries:
  sales:
    windows:
      orders:
        type: source
        schema: id*:int64,at:stamp
        connectors:
          in: {{kind: fs, direction: publish, properties: {{fsname: in.csv{publish}}}}}
      kept:
        type: copy
        connectors:
          out: {{kind: fs, direction: subscribe, properties: {{fsname: out.csv{subscribe}}}}}
    edges: [orders -> kept]
"""


def said(tmp_path: Path, publish: str = "", subscribe: str = "", *options: str) -> tuple[int, str]:
    file = tmp_path / "shop.yaml"
    file.write_text(PROJECT.format(publish=publish and f", {publish}", subscribe=subscribe and f", {subscribe}"))
    done = hotspare_here("validate", file, *options)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("header: full", "a whole number of at least 0"),
        ("rate: fast", "a number of at least 0"),
        ("maxevents: 1.5", "a whole number of at least 0"),
        ("addcsvopcode: maybe", "false or 0 or no or true or 1 or yes"),
        ("addcsvflags: some", "none or normal or partialupdate"),
        ("dateformat: '%Q'", "use %Y"),
        ("csvfielddelimiter: ';;'", "one ASCII character other than"),
    ],
)
def test_a_publishers_value_that_cannot_be_used_is_a_mistake_i5(tmp_path: Path, given: str, wanted: str) -> None:
    status, error = said(tmp_path, publish=given)
    assert status == 2
    assert "shop.yaml:10:11: " in error
    assert wanted in error


@pytest.mark.parametrize(
    "given",
    ["header: some", "snapshot: maybe", "collapse: x", "rmretdel: x", "maxfilesize: -1", "periodicity: 0.5", "dateformat: '%z'"],
)
def test_a_subscribers_value_that_cannot_be_used_is_a_mistake_i6(tmp_path: Path, given: str) -> None:
    status, error = said(tmp_path, subscribe=given)
    assert status == 2
    assert "shop.yaml:14:11: " in error


def test_all_of_them_are_told_at_once(tmp_path: Path) -> None:
    status, error = said(tmp_path, publish="rate: fast, header: some", subscribe="collapse: x")
    assert status == 2
    assert "3 mistakes" in error


def test_what_adapters_take_is_no_mistake(tmp_path: Path) -> None:
    publish = "header: 'true', rate: 2.5, dateformat: '%Y-%m-%d', csvfielddelimiter: ';', addcsvopcode: 'yes', begin: 0"
    assert said(tmp_path, publish, "header: full, dateformat: '%d.%m.%Y', maxfilesize: 100")[0] == 0


def test_a_value_that_a_property_gives_is_looked_at_when_it_is_given(tmp_path: Path) -> None:
    assert said(tmp_path, "rate: '@RATE@'")[0] == 0
    assert said(tmp_path, "rate: '@RATE@'", "", "--set", "RATE=7")[0] == 0
    assert said(tmp_path, "rate: '@RATE@'", "", "--set", "RATE=seven")[0] == 2
