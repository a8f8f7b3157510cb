"""The SQLite bus as a file: kill -9 at any instant, a frozen process with the lock, a full disk, foreign files."""

from __future__ import annotations

import random
import signal
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hotspare.base.errors import BusLocked, BusUnavailable, TopicMissing, UsageError
from hotspare.bus.contract import Commit, Outgoing, Partition
from hotspare.bus.open import open_bus
from hotspare.bus.sqlite import SqliteBus, decode_headers, encode_headers
from tests.contract.material import START_US, child, outgoing, progress, read_all, values

KILLS = 20

_PUBLISH_FOR_EVER = """
import sys
from pathlib import Path
from hotspare.bus.contract import Commit, Outgoing, Partition
from hotspare.bus.sqlite import SqliteBus
from tests.contract.material import progress
bus = SqliteBus(Path(sys.argv[1]), busy_timeout_ms=5000)
epoch = int(sys.argv[2])
bus.create_topic("in")
bus.create_topic("out")
producer = bus.producer("g", ["out"])
producer.fence(epoch)
done = producer.progress()
sequence = done["s"].sequence if done else 0
print("ready", flush=True)
while True:
    sequence += 1
    bus.append(Partition("in"), [Outgoing(b"x" * (sequence * 37 % 3000))] * (sequence % 5 + 1))
    producer.publish(epoch, Commit({"out": [Outgoing(b"%d" % sequence)] * 2}, {"s": progress(sequence, epoch)}))
    bus.trim(Partition("in"), bus.end_offset(Partition("in")) - 50)
"""


def test_kill_at_any_instant_leaves_a_consistent_bus(tmp_path: Path) -> None:
    """Offsets have no gap, each commit is whole, progress equals the topic's end, and the file is intact."""
    file = tmp_path / "bus.db"
    choice = random.Random(20)
    seen = 0
    for epoch in range(1, KILLS + 1):
        with child(_PUBLISH_FOR_EVER, file, epoch) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            bus = SqliteBus(file, busy_timeout_ms=20_000)
            # Wait for a random number of commits and then of reads, and kill the process at that instant.
            aim = bus.end_offset(Partition("out")) + 2 * choice.randint(1, 8)
            while bus.end_offset(Partition("out")) < aim:
                bus.read(Partition("out"), aim - 1, messages_max=1, bytes_max=1, wait_ms=1000)
            for _ in range(choice.randrange(100)):
                bus.end_offset(Partition("out"))
            process.send_signal(signal.SIGKILL)
            process.wait()
            bus.close()
        seen = _check(file, epoch, seen)


def _check(file: Path, epoch: int, seen: int) -> int:
    bus = SqliteBus(file)
    try:
        done = bus.progress("g")["s"]
        found = read_all(bus, Partition("out"))
        assert [message.offset for message in found] == list(range(len(found)))
        assert [int(message.value) for message in found] == [n for n in range(1, done.sequence + 1) for _ in range(2)]
        assert done == progress(done.sequence, epoch)
        assert done.sequence > seen
        begin, end = bus.begin_offset(Partition("in")), bus.end_offset(Partition("in"))
        assert [message.offset for message in read_all(bus, Partition("in"), begin)] == list(range(begin, end))
    finally:
        bus.close()
    with sqlite3.connect(file) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
    return done.sequence


_APPEND_MANY = """
import sys
from hotspare.bus.contract import Outgoing, Partition
from hotspare.bus.open import open_bus
bus = open_bus("sqlite:///" + sys.argv[1] + "?busy_timeout_ms=20000")
bus.create_topic("in", 2)
sys.stdin.readline()
for n in range(150):
    bus.append(Partition("in", n % 2), [Outgoing(f"{sys.argv[2]} {n}".encode())])
"""


def test_two_processes_append_at_once(tmp_path: Path) -> None:
    """They also create the file and its topics concurrently."""
    file = tmp_path / "bus.db"
    with child(_APPEND_MANY, file, "a") as one, child(_APPEND_MANY, file, "b") as two:
        for process in (one, two):
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        assert (one.wait(180), two.wait(180)) == (0, 0)
    bus = SqliteBus(file)
    for number in range(2):
        found = read_all(bus, Partition("in", number))
        assert [m.offset for m in found] == list(range(150))
        times = [m.append_time_us for m in found]
        assert times == sorted(times)
        for name in "ab":
            assert [m.value.decode() for m in found if m.value.startswith(name.encode())] == [
                f"{name} {n}" for n in range(number, 150, 2)
            ]
    bus.close()


_HOLD_THE_LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
"""


def test_a_frozen_lock_holder_is_told_promptly_and_its_end_frees_the_bus(tmp_path: Path) -> None:
    file = tmp_path / "bus.db"
    bus = SqliteBus(file, busy_timeout_ms=50)
    bus.create_topic("in")
    producer = bus.producer("g", ["in"])
    with child(_HOLD_THE_LOCK, file) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        holder.send_signal(signal.SIGSTOP)
        with pytest.raises(BusLocked, match="locked by another process"):
            bus.append(Partition("in"), outgoing("a"))
        with pytest.raises(BusLocked):
            producer.fence(1)
        assert values(bus, "in") == []
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    producer.fence(1)
    assert bus.append(Partition("in"), outgoing("a")) == 0
    bus.close()


_FILL_THE_DISK = """
import resource, sys
from pathlib import Path
from hotspare.bus.contract import Commit, Outgoing
from hotspare.bus.sqlite import SqliteBus
from hotspare.base.errors import UnknownResult, BusUnavailable
from tests.contract.material import progress
bus = SqliteBus(Path(sys.argv[1]))
bus.create_topic("out")
producer = bus.producer("g", ["out"])
producer.fence(1)
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
value = b"v" * int(sys.argv[2])
for sequence in range(1, 1000):
    try:
        producer.publish(1, Commit({"out": [Outgoing(value)]}, {"s": progress(sequence, 1)}))
    except (UnknownResult, BusUnavailable) as error:
        print(type(error).__name__, sequence, flush=True)
        break
"""


@pytest.mark.parametrize(("value_bytes", "expected"), [(5_000, "UnknownResult"), (12_000_000, "BusUnavailable")])
def test_a_full_disk_is_unknown_at_the_commit_and_known_before(tmp_path: Path, value_bytes: int, expected: str) -> None:
    """A small transaction reaches the file when it commits; a large one spills before, and then nothing was written."""
    file = tmp_path / "bus.db"
    with child(_FILL_THE_DISK, file, value_bytes) as process:
        said, _ = process.communicate(timeout=180)
    name, failed = said.split()
    assert name == expected
    bus = SqliteBus(file)
    done = bus.progress("g")
    committed = done["s"].sequence if done else 0
    assert committed in (int(failed) - 1, int(failed))
    assert bus.end_offset(Partition("out")) == committed
    bus.producer("g", ["out"]).publish(1, Commit({"out": outgoing("after")}, {"s": progress(committed + 1, 1)}))
    assert bus.end_offset(Partition("out")) == committed + 1
    bus.close()


def test_no_fence_can_come_between_the_check_of_the_epoch_and_the_commit(tmp_path: Path) -> None:
    """Law 7: the clock is read after the comparison of epochs, so it can try to fence."""
    file = tmp_path / "bus.db"
    other = SqliteBus(file, busy_timeout_ms=10)
    other.create_topic("out")
    refused: list[str] = []

    def clock() -> int:
        try:
            other.producer("g", ["out"]).fence(2)
        except BusLocked as error:
            refused.append(error.code)
        return 1

    bus = SqliteBus(file, clock=clock)
    producer = bus.producer("g", ["out"])
    producer.fence(1)
    producer.publish(1, Commit({"out": outgoing("a")}))
    assert refused == [BusLocked.code]
    bus.close()
    other.close()


def test_a_file_whose_old_messages_expire_stops_growing(tmp_path: Path) -> None:
    """The space of deleted messages is reused."""
    place, now_us = Partition("in"), START_US
    bus = SqliteBus(tmp_path / "bus.db", clock=lambda: now_us)
    bus.create_topic("in")
    sizes = []
    for _ in range(60):
        bus.append(place, outgoing(*("x" * 2_000 for _ in range(100))))
        now_us += 1_000_000
        bus.expire(place, 10_000, 1_000)
        sizes.append(sum((tmp_path / f"bus.db{end}").stat().st_size for end in ("", "-wal")))
    assert bus.end_offset(place) - bus.begin_offset(place) == 1_000
    assert sizes[-1] <= 1.05 * sizes[40]
    bus.close()


def test_a_publish_is_one_transaction_from_the_check_of_the_epoch_to_the_progress(tmp_path: Path) -> None:
    bus = SqliteBus(tmp_path / "bus.db")
    bus.create_topic("out")
    producer = bus.producer("g", ["out"])
    producer.fence(1)
    said: list[str] = []
    bus._file._file._connection().set_trace_callback(said.append)
    producer.publish(1, Commit({"out": outgoing("a")}, {"s": progress(1, 1)}))
    bus._file._file._connection().set_trace_callback(None)
    words = [text.split()[0] for text in said]
    assert (words[0], words[-1]) == ("BEGIN", "COMMIT")
    assert not {"BEGIN", "COMMIT"} & set(words[1:-1])
    assert "FROM machine" in said[1]
    assert "FROM fences" in said[2]
    assert sum("INTO messages_" in text or "INTO progress" in text for text in said) == 2
    bus.close()


def _sqlite(file: Path, *statements: str) -> None:
    connection = sqlite3.connect(file)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def test_a_file_that_is_not_ours_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a data base, whatever its name says\n" * 100)
    with pytest.raises(UsageError, match="is not a bus of hotspare"):
        SqliteBus(text)
    assert text.read_text().startswith("not a data base")
    empty = tmp_path / "empty.db"
    empty.touch()
    with pytest.raises(UsageError, match="give the name of a file that does not exist yet"):
        SqliteBus(empty)
    assert not empty.read_bytes()
    other = tmp_path / "other.db"
    _sqlite(other, "CREATE TABLE t(x)")
    content = other.read_bytes()
    with pytest.raises(UsageError, match="is not a bus of hotspare"):
        SqliteBus(other)
    assert other.read_bytes() == content


def test_a_file_that_is_deleted_or_replaced_is_not_gone_on_with(tmp_path: Path) -> None:
    """Writes to a file without a name are lost, and no events of other processes arrive."""
    file, kept = tmp_path / "bus.db", tmp_path / "kept.db"
    bus = SqliteBus(file)
    bus.create_topic("t")
    file.rename(kept)

    def in_another_thread() -> None:
        with pytest.raises(BusUnavailable, match="no longer exists"):
            bus.append(Partition("t"), outgoing("b"))

    with pytest.raises(BusUnavailable, match="no longer exists"):
        bus.append(Partition("t"), outgoing("a"))
    with ThreadPoolExecutor(1) as pool:
        pool.submit(in_another_thread).result()
    assert not file.exists(), "an empty file in its place would be no bus for anybody"
    kept.rename(file)
    bus.append(Partition("t"), outgoing("c"))
    assert values(bus, "t") == ["c"]
    file.unlink()
    SqliteBus(file).close()
    with pytest.raises(BusUnavailable, match="was replaced"):
        bus.topics()
    bus.close()


def test_a_folder_is_no_bus(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a bus of hotspare"):
        SqliteBus(tmp_path)


def test_a_folder_that_takes_no_file_is_said(tmp_path: Path) -> None:
    """The name is too long for any file: unlike a missing write permission, that fails for root too."""
    with pytest.raises(UsageError, match="cannot be created") as raised:
        SqliteBus(tmp_path / f"{'b' * 240}.db")
    assert "the permissions of its folder" in raised.value.hint
    assert list(tmp_path.iterdir()) == []


def test_many_that_make_the_file_at_once_get_one_file(tmp_path: Path) -> None:
    barrier = threading.Barrier(4)

    def make(number: int) -> None:
        barrier.wait(30)
        bus = SqliteBus(tmp_path / "bus.db", busy_timeout_ms=20_000)
        bus.create_topic(f"t{number}")
        bus.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(make, range(4)))
    bus = SqliteBus(tmp_path / "bus.db")
    assert sorted(bus.topics()) == ["t0", "t1", "t2", "t3"]
    bus.close()
    assert [path.name for path in tmp_path.iterdir()] == ["bus.db"]


def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "bus.db"
    SqliteBus(file).close()
    _sqlite(file, "PRAGMA user_version=2")
    with pytest.raises(UsageError, match="has format 2, this hotspare reads 1"):
        SqliteBus(file)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere"):
        SqliteBus(tmp_path / "nowhere" / "bus.db")


@pytest.mark.parametrize("busy_timeout_ms", [0, -5, 10**9])
def test_an_unusable_busy_timeout_is_refused(tmp_path: Path, busy_timeout_ms: int) -> None:
    with pytest.raises(UsageError, match="busy timeout"):
        SqliteBus(tmp_path / "bus.db", busy_timeout_ms)


def test_after_close_every_thread_is_told(tmp_path: Path) -> None:
    bus = SqliteBus(tmp_path / "bus.db")
    bus.create_topic("in")
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(bus.topics).result() == {"in": 1}
        bus.close()
        with pytest.raises(BusUnavailable, match="was closed"):
            pool.submit(bus.topics).result()
    with pytest.raises(BusUnavailable, match="was closed"):
        bus.append(Partition("in"), outgoing("a"))


def test_connections_of_ended_threads_are_given_back(tmp_path: Path) -> None:
    """A runner that starts a thread per batch must not run out of files."""
    bus = SqliteBus(tmp_path / "bus.db")
    bus.create_topic("in")
    files = Path("/proc/self/fd")
    before = len(list(files.iterdir()))
    for _ in range(50):
        thread = threading.Thread(target=bus.topics)
        thread.start()
        thread.join()
    assert len(list(files.iterdir())) < before + 10
    bus.close()


def test_a_reader_does_not_see_half_a_commit_and_does_not_block_writers(tmp_path: Path) -> None:
    file = tmp_path / "bus.db"
    bus = open_bus(f"sqlite:///{file}")
    with pytest.raises(TopicMissing):
        bus.append(Partition("in"), [])
    bus.create_topic("in")
    writer = sqlite3.connect(file, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("INSERT INTO messages_1 VALUES(0, 0, NULL, x'00')")
    assert bus.read(Partition("in"), 0, messages_max=1, bytes_max=1) == []
    writer.execute("ROLLBACK")
    writer.close()
    assert bus.append(Partition("in"), [Outgoing(b"a")]) == 0
    bus.close()


def test_headers_take_no_space_where_there_are_none() -> None:
    assert encode_headers(()) is None
    assert decode_headers(None) == ()
