"""Files as recorded topics: times from a field, a rate or none, and ticks at every heartbeat of them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.adapters.file_places import FilePlaces
from hotspare.adapters.files.publisher import PublishOptions
from hotspare.adapters.recording import RecordingProgress, ReplayFile, is_end, record_files
from hotspare.base.choices import RunUntil
from hotspare.base.errors import UsageError
from hotspare.model.types import Field, FieldType, KeyRole, Schema

SCHEMA = Schema((Field("id", FieldType.INT64, KeyRole.KEY), Field("at", FieldType.STAMP), Field("day", FieldType.DATE)))
HEARTBEAT_US = 10
Message = tuple[int, int, int, bool, bytes]
"""Topic, offset, time, tick, value."""


def messages(files: Sequence[ReplayFile], topics: int = 1, heartbeat_us: int = HEARTBEAT_US) -> list[Message]:
    names = ("topic", "offset", "time_us", "tick", "value")
    batches = [batch.select(names).to_pylist() for batch in record_files(files, topics, heartbeat_us, until=RunUntil.LAST_ROW)]
    return [tuple(row[name] for name in names) for batch in batches for row in batch]  # type: ignore[misc]


def timed(path: Path, times_us: Sequence[int | None], topic: int = 0, **options: object) -> ReplayFile:
    path.write_text("".join(f"i,n,1,{'' if time_us is None else time_us},\n" for time_us in times_us))
    return ReplayFile(topic, path, SCHEMA, PublishOptions(**options), "at")  # type: ignore[arg-type]


times = st.lists(st.none() | st.integers(0, 100), max_size=12)


@given(first=times, second=times)
def test_ticks_stand_at_every_heartbeat_before_the_events_of_their_time(first: list[int | None], second: list[int | None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = [timed(Path(folder) / f"{topic}.csv", each, topic) for topic, each in enumerate((first, second))]
        found = messages(files, topics=3)
    events = [message for message in found if not message[3]]
    assert [m[2] for m in found] == sorted(m[2] for m in found)
    assert len(events) == len(first) + len(second)
    begin = events[0][2] if events else 0
    end = events[-1][2] if events else 0
    expected = [*range(begin + HEARTBEAT_US, end + 1, HEARTBEAT_US), end + 1]
    for topic in range(3):
        mine = [message for message in found if message[0] == topic]
        assert [m[1] for m in mine] == list(range(len(mine))), "offsets count from 0"
        assert [m[2] for m in mine if m[3]] == expected
    timed_from = next((place for place, m in enumerate(found) if not m[4].endswith(b",,") and not m[3]), len(found))
    order = [(m[2], not m[3], m[0]) for m in found[timed_from:-3]]
    assert order == sorted(order), "ticks of a time first, topics in order"
    untimed = [m[0] for m in found[:timed_from] if not m[3]]
    assert untimed == sorted(untimed), "rows before the first time come first, topics in order"


@given(times)
def test_time_never_falls_and_a_row_without_one_keeps_it(own: list[int | None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = [m[2] for m in messages([timed(Path(folder) / "a.csv", own)]) if not m[3]]
    newest, expected = next((time_us for time_us in own if time_us is not None), 0), []
    for time_us in own:
        newest = max(newest, newest if time_us is None else time_us)
        expected.append(newest)
    assert found == expected


def test_rows_without_a_time_come_first_at_the_first_time_of_all(tmp_path: Path) -> None:
    untimed = ReplayFile(1, tmp_path / "b", SCHEMA, PublishOptions())
    untimed.path.write_text("i,n,2,,\n" * 2)
    found = messages([timed(tmp_path / "a", [70, 75]), untimed], topics=2)
    assert [(m[0], m[2]) for m in found if not m[3]] == [(1, 70), (1, 70), (0, 70), (0, 75)]


def test_a_row_whose_time_goes_back_is_told_once_where_files_are_merged(tmp_path: Path) -> None:
    """The first such row of each file, also after the first batch; a repeated file, and a single one, are in order."""
    late = timed(tmp_path / "late", [*range(5_000), 7, 6, None, 5])
    again, only = timed(tmp_path / "again", [5, None, 5], 1, repeats=2), timed(tmp_path / "only", [2, 1])
    told: list[str] = []
    for files in ([late, again], [only]):
        assert list(
            record_files(files, 2, HEARTBEAT_US, warn=lambda sentence: None if "1971" in sentence else told.append(sentence))
        )
    (sentence,) = told
    assert sentence.startswith(f"{late.path}:5001: the time in field at falls")


def test_the_input_ends_in_a_batch_of_its_own(tmp_path: Path) -> None:
    *_, last = record_files([timed(tmp_path / "a", [70])], 2, HEARTBEAT_US)
    assert is_end(last)
    assert last.select(["topic", "time_us", "tick"]).to_pylist() == [{"topic": t, "time_us": 71, "tick": True} for t in range(2)]


def test_rows_of_megabytes_come_in_batches_of_a_few_each(tmp_path: Path) -> None:
    path, schema = tmp_path / "a.csv", Schema((Field("id", FieldType.INT64, KeyRole.KEY), Field("x", FieldType.STRING)))
    path.write_text("".join(f"i,n,{number},{'x' * (1 << 20)}\n" for number in range(40)))
    batches = list(record_files([ReplayFile(0, path, schema, PublishOptions())], 1, 10**9, until=RunUntil.LAST_ROW))
    assert sum(batch.num_rows for batch in batches) == 41
    assert max(batch.nbytes for batch in batches) < 18 << 20


def test_a_date_counts_seconds_and_a_rate_counts_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("i,n,1,,1970-01-02\n" * 3)
    by_day = ReplayFile(0, path, SCHEMA, PublishOptions(), "day")
    by_rate = ReplayFile(0, path, SCHEMA, PublishOptions(rate=4, header_rows=1))
    assert {m[2] for m in messages([by_day], heartbeat_us=10**9) if not m[3]} == {86_400_000_000}
    assert [m[2] for m in messages([by_rate], heartbeat_us=10**9) if not m[3]] == [0, 250_000]


def test_rows_come_in_runs_which_heartbeats_and_batches_cut(tmp_path: Path) -> None:
    """More rows than a batch holds, some of them two lines long; a heartbeat before every 700th."""
    path, places = tmp_path / "a.csv", FilePlaces([tmp_path / "a.csv"])
    rows = [b'i,n,1,,"\n"' if number % 900 == 5 else b"i,n,%d,," % number for number in range(9_000)]
    path.write_bytes(b"\n".join(rows) + b"\n")
    file = ReplayFile(0, path, SCHEMA, PublishOptions(rate=1000))
    batches = list(record_files([file], 1, 700_000, places=places, until=RunUntil.LAST_ROW))
    assert max(batch.num_rows for batch in batches) <= 4096 + 1
    ticks, values, offsets = ([v for b in batches for v in b.column(n).to_pylist()] for n in ("tick", "value", "offset"))
    assert offsets == list(range(len(offsets)))
    assert [value for value, tick in zip(values, ticks, strict=True) if not tick] == rows
    assert [offset for offset, tick in zip(offsets, ticks, strict=True) if tick] == [700 * i + i - 1 for i in range(1, 13)] + [
        9_012
    ]
    lines = [1 + number + sum(each % 900 == 5 for each in range(number)) for number in range(9_000)]
    told = [places.location_of(0, offset) for offset, tick in zip(offsets, ticks, strict=True) if not tick]
    assert told == [f"{path}:{line}" for line in lines]


def test_maxevents_and_repetitions_as_the_connector_has_them(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("title\ni,n,1,,\ni,n,2,,\n")
    options = PublishOptions(header_rows=1, repeats=2, events_max=5)
    values = [m[4] for m in messages([ReplayFile(0, path, SCHEMA, options)]) if not m[3]]
    assert values == [b"i,n,1,,", b"i,n,2,,", b"i,n,1,,", b"i,n,2,,", b"i,n,1,,"]


def test_two_files_of_one_topic_stand_one_after_the_other(tmp_path: Path) -> None:
    files = []
    for name in ("a", "b"):
        path = tmp_path / name
        path.write_text(f"i,n,{name},,\n" * 2)
        files.append(ReplayFile(0, path, SCHEMA, PublishOptions()))
    assert [m[4][4:5] for m in messages(files) if not m[3]] == [b"a", b"a", b"b", b"b"]


def test_progress_ends_at_the_whole(tmp_path: Path) -> None:
    progress = RecordingProgress()
    file = timed(tmp_path / "a.csv", list(range(10)), repeats=1)
    list(record_files([file], 1, HEARTBEAT_US, progress))
    assert (progress.events, progress.bytes_read, progress.bytes_total) == (20, 180, 180)


def test_too_many_heartbeats_are_refused(tmp_path: Path) -> None:
    def rows(until: int) -> int:
        return sum(
            len(each)
            for each in record_files([timed(tmp_path / "a.csv", [0, until])], 1, HEARTBEAT_US, ticks_max=5, until=RunUntil.LAST_ROW)
        )

    assert rows(50) == 2 + 5 + 1
    with pytest.raises(UsageError, match="after 6 heartbeats; the limit is 5"):
        rows(60)
