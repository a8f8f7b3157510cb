"""The command line as a whole: quick help, errors as text, stable exit statuses for scripts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from hotspare import __version__
from hotspare.base.errors import UsageError
from hotspare.bus.contract import Partition
from hotspare.bus.open import open_bus
from hotspare.cli import main
from hotspare.cli.main import COMMANDS, GROUPS
from tests.cli.running import hotspare


def loading(*arguments: str) -> str:
    """Returns a command's output, and then the heavy packages that it loaded."""
    code = (
        "import sys\nfrom hotspare.cli.main import main\nsys.argv = ['hotspare', *sys.argv[1:]]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('loaded', sorted({'pyspark', 'numba', 'pyarrow', 'confluent_kafka', 'sqlglot', 'numpy'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def test_a_publisher_of_a_file_loads_no_compiler(tmp_path: Path) -> None:
    """Scripts that publish many files start it each time."""
    url, topic, rows = f"sqlite:///{tmp_path / 'bus.db'}", Partition("p.shop.q.orders.I"), tmp_path / "rows.csv"
    rows.write_text("i,n,1,2\n")
    with closing(open_bus(url)) as bus:
        bus.create_topic(topic.topic)
        said = loading("publish", "--bus", url, "--prefix", "p", "--window", "shop/q/orders", str(rows))
        assert bus.end_offset(topic) == 1
    assert "loaded ['numpy', 'pyarrow']" in said


def test_help_names_every_command_and_loads_nothing_heavy() -> None:
    said = loading("--help")
    assert "loaded []" in said
    assert [name for name in COMMANDS if f"\n  {name} " not in said] == []


@pytest.mark.parametrize("columns", ["60", "80"])
def test_help_has_whole_sentences_by_what_commands_are_for(columns: str) -> None:
    said = hotspare("--help", COLUMNS=columns).stdout
    assert "..." not in said.replace("[ARGS]...", "")
    assert max(map(len, said.splitlines())) <= int(columns)
    headings = [line for line in said.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings == ["Options:", *(f"{heading}:" for heading in GROUPS)]


def test_the_version_is_told() -> None:
    assert hotspare("--version").stdout == f"hotspare {__version__}\n"


def test_a_project_that_cannot_be_used_ends_with_2_and_all_its_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("project: p\nqueries:\n  q:\n    windows:\n      a: {type: pattern}\n      b: {type: sourcee}\n")
    done = hotspare("validate", path)
    assert done.returncode == 2
    assert "HS-0200" in done.stderr
    assert f"{path}:5" in done.stderr
    assert f"{path}:6" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_failure_ends_with_1_and_without_a_traceback(tmp_path: Path) -> None:
    open_bus(f"sqlite:///{tmp_path}/bus.db").close()
    done = hotspare("subscribe", "--bus", f"sqlite:///{tmp_path}/bus.db", "--window", "p/q/w", "--to-end", tmp_path / "out.csv")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-2].startswith("hotspare: HS-0307 topic hotspare.p.q.w.O does not exist")
    assert "hint:" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_traceback_is_shown_on_request(tmp_path: Path) -> None:
    done = hotspare("validate", tmp_path / "none.yaml", HOTSPARE_DEBUG="1")
    assert done.returncode == 2
    assert "Traceback" in done.stderr


def test_an_error_that_nobody_expected_says_where_and_what_it_comes_of(capsys: pytest.CaptureFixture[str]) -> None:
    """The text contains all that a report needs, also without HOTSPARE_DEBUG."""

    def fail(_names: Sequence[str]) -> None:
        failure = RuntimeError("outer")
        failure.add_note("event 7 of q/w: i,n,1")
        raise failure from KeyError("inner")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(main, "build_app", fail)
        patch.delenv("HOTSPARE_DEBUG", raising=False)
        main.main()
    assert ended.value.code == 1
    said = capsys.readouterr().err.splitlines()
    assert said[:2] == ["hotspare: unexpected RuntimeError: outer", "  event 7 of q/w: i,n,1"]
    assert any(line.startswith("  at hotspare/cli/main.py:") for line in said)
    assert "  because of KeyError: 'inner'" in said


def test_an_option_that_does_not_exist_ends_with_2() -> None:
    done = hotspare("status", "--nonsense")
    assert done.returncode == 2
    assert "--nonsense" in done.stderr


def test_a_password_in_an_error_is_never_shown(capsys: pytest.CaptureFixture[str]) -> None:
    error = UsageError("bus postgresql://user:hunter2@host/db cannot be reached")
    main._show(error, str(error))
    assert capsys.readouterr().err == "hotspare: HS-0100 bus postgresql://user:***@host/db cannot be reached\n"
