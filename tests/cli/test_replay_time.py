"""Time in a replay: files of several sources are merged by the times that the project names, and after the last row time runs on
until nothing waits for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import hotspare_here

PAY = """
project: pay
queries:
  pay:
    windows:
      orders: {type: source, schema: "id*:string,at:stamp", opcodes: insert-only, index: empty}
      payments: {type: source, schema: "id*:string,order:string,at:stamp", opcodes: insert-only, index: empty}
      notes: {type: source, schema: "id*:string,at:stamp", opcodes: insert-only, index: empty}
      told: {type: copy, index: empty}
      unpaid:
        type: pattern
        index: empty
        schema: "n*:int64,order:string"
        patterns:
          missing:
            events:
              order: {source: orders, condition: k = id}
              payment: {source: payments, condition: k = order}
            logic: fby{10 minutes}(order, notoccur(payment))
            outputs: {order: order.id}
            timefields: TIMES
    edges: [orders -> unpaid, payments -> unpaid, notes -> told]
"""
ORDERS = ["A,2026-01-05 08:00:00", "B,2026-01-05 08:02:00", "C,2026-01-05 08:10:00", "D,2026-01-05 08:30:00"]
PAYMENTS = ["1,A,2026-01-05 08:05:00", "2,C,2026-01-05 08:25:00"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, rows in (("orders", ORDERS), ("payments", PAYMENTS), ("notes", ["n,2026-01-05 08:00:00"])):
        (tmp_path / f"{name}.csv").write_text("".join(f"I,N,{row}\n" for row in rows))
    return written(tmp_path, "{orders: at, payments: at}")


def written(folder: Path, times: str) -> Path:
    file = folder / "pay.yaml"
    file.write_text(PAY.replace("TIMES", times))
    return file


def unpaid(project: Path, *options: str) -> tuple[list[str], str]:
    """Returns the reported orders, and the command's standard error."""
    folder = project.parent
    inputs = [f"--in=pay/{name}={folder / name}.csv" for name in ("orders", "payments")]
    ran = hotspare_here("replay", project, *inputs, f"--out=pay/unpaid={folder / 'out.csv'}", *options)
    assert ran.returncode == 0, ran.stderr
    return [line.rpartition(",")[2] for line in (folder / "out.csv").read_text().splitlines()], ran.stderr


def test_files_are_merged_by_the_times_that_the_project_names_and_the_last_row_is_waited_for(project: Path) -> None:
    """A is paid in time, C too late; neither file has a row after D's."""
    assert unpaid(project)[0] == ["B", "C", "D"]


def test_time_may_stop_at_the_last_row(project: Path) -> None:
    assert unpaid(project, "--until", "last-row")[0] == ["B", "C"]


def test_system_time_runs_on_too(project: Path) -> None:
    project = written(project.parent, "{}")
    times = ("--time", "pay/orders=at", "--time", "pay/payments=at")
    assert unpaid(project, *times)[0] == ["B", "C", "D"]
    assert unpaid(project, *times, "--until", "last-row")[0] == ["B", "C"]


def test_files_whose_order_nothing_tells_are_refused_with_the_way_on(project: Path) -> None:
    project = written(project.parent, "{}")
    inputs = [f"--in=pay/{name}={project.parent / name}.csv" for name in ("orders", "payments")]
    ran = hotspare_here("replay", project, *inputs, f"--out=pay/unpaid={project.parent / 'out.csv'}")
    assert ran.returncode == 2
    assert "the rows of pay/orders cannot be merged with those of other files by time" in ran.stderr
    assert "window pay/unpaid depends on the order of events, and names no field of their time" in ran.stderr
    assert "--time pay/orders=FIELD" in ran.stderr


def test_one_file_needs_no_time(project: Path) -> None:
    project = written(project.parent, "{}")
    orders = f"--in=pay/orders={project.parent / 'orders.csv'}"
    ran = hotspare_here("replay", project, orders, f"--out=pay/unpaid={project.parent / 'out.csv'}")
    assert ran.returncode == 0, ran.stderr
    assert len((project.parent / "out.csv").read_text().splitlines()) == len(ORDERS)


def test_rows_with_times_that_come_before_all_others_are_told(project: Path) -> None:
    notes = f"--in=pay/notes={project.parent / 'notes.csv'}"
    orders, told = unpaid(project, notes)
    assert orders == ["B", "C", "D"]
    assert "warning: all rows of pay/notes come before those of other files; to merge them: --time pay/notes=FIELD" in told
    assert "warning" not in unpaid(project, notes, "--time", "pay/notes=at")[1]
