"""Address space whose parts are evicted: reading it, the memory that it takes, and errors of the disk."""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hotspare.base.errors import PageFileError, UsageError
from hotspare.table.page_cache import system
from hotspare.table.page_cache.budget import Budget
from hotspare.table.page_cache.page_file import PagedSpace, PageFile, check_folder
from hotspare.table.page_cache.system import PAGE

PAGES = 64
ENTRIES = PAGE // 8
"""The entries of a system page."""


def filled(folder: Path) -> PagedSpace:
    space = PagedSpace(folder, np.dtype(np.int64), PAGES * ENTRIES)
    space.array[:] = np.arange(PAGES * ENTRIES)
    return space


def in_memory(space: PagedSpace) -> list[int]:
    return np.flatnonzero(system.in_memory(space.array.ctypes.data, PAGES)).tolist()


def test_what_left_is_read_as_before_page_by_page(tmp_path: Path) -> None:
    """SPEC G2, G4."""
    space = filled(tmp_path)
    space.evict_range(8 * ENTRIES, 40 * ENTRIES)
    assert in_memory(space) == [*range(8), *range(40, PAGES)]
    assert space.array[20 * ENTRIES] == 20 * ENTRIES
    assert in_memory(space) == [*range(8), 20, *range(40, PAGES)]
    assert space.array.tolist() == list(range(PAGES * ENTRIES))
    space.array[:ENTRIES] = 7  # entries in memory may be written
    assert list(tmp_path.iterdir()) == []


def test_wanted_pages_come_together_and_the_longest_unused_leave(tmp_path: Path) -> None:
    space = filled(tmp_path)
    space.evict_range(0, PAGES * ENTRIES)
    space.now = 2
    space.prefetch_each(np.array([3, 5, 5]) * ENTRIES - 1, 2)  # across an edge between pages
    assert space.fetched == 4
    space.now = 3
    space.prefetch_one_range(4 * ENTRIES, 6 * ENTRIES)
    assert space.fetched == 4
    space.array[2 * ENTRIES :: ENTRIES][:4].sum()
    assert in_memory(space) == [2, 3, 4, 5]
    space.drop_prefetched(2)
    assert space.fetched == 2
    assert space.uses().tolist() == [3, 3]
    space.array[50 * ENTRIES].item()  # reads without a prefetch are detected
    space.poll_in_memory(PAGES)
    assert space.fetched == len(in_memory(space))
    assert 50 in in_memory(space)


def test_steps_of_months_are_counted(tmp_path: Path) -> None:
    """A thousand steps a second are 2 ** 32 after fifty days."""
    space = filled(tmp_path)
    space.evict_range(0, PAGES * ENTRIES)
    for space.now in (2**32 - 1, 2**32 + 1):
        space.prefetch_one_range(space.now % 7 * ENTRIES, (space.now % 7 + 1) * ENTRIES)
    assert sorted(space.uses().tolist()) == [2**32 - 1, 2**32 + 1]


def test_parts_are_wanted_together(tmp_path: Path) -> None:
    """Each from its beginning to its end; a reader for a snapshot does not count."""
    space = filled(tmp_path)
    space.evict_range(0, 32 * ENTRIES)
    begins, ends = np.array([20 * ENTRIES - 1, 3 * ENTRIES, 40 * ENTRIES]), np.array([22 * ENTRIES, 4 * ENTRIES, 41 * ENTRIES])
    space.read_many_ranges_ahead(begins, ends)
    assert space.fetched == 0
    space.prefetch_many_ranges(begins, ends)
    assert space.fetched == 4
    assert space.array[[20 * ENTRIES - 1, 20 * ENTRIES, 21 * ENTRIES, 3 * ENTRIES]].tolist() == [
        each * ENTRIES + more for each, more in ((20, -1), (20, 0), (21, 0), (3, 0))
    ]
    assert {3, 19, 20, 21} <= set(in_memory(space))


def test_what_nobody_needs_gives_its_room_back_and_can_be_written_once_it_is_given_back(tmp_path: Path) -> None:
    space = filled(tmp_path)
    space.evict_range(0, 32 * ENTRIES)
    space.prefetch_one_range(8 * ENTRIES, 24 * ENTRIES)
    mappings, blocks = mappings_now(), blocks_of(space)
    for page in range(8, 24, 2):
        space.discard_evicted(page * ENTRIES, (page + 1) * ENTRIES)
    assert (space.away, space.fetched) == (24, 8)
    assert blocks_of(space) <= blocks - 6 * PAGE // 512  # the list of holes takes some
    assert mappings_now() <= mappings  # pages here and there do not take one each
    assert space.array[9 * ENTRIES] == 9 * ENTRIES
    space.release_range(8 * ENTRIES, 24 * ENTRIES)
    assert (space.away, space.fetched) == (16, 0)
    space.array[8 * ENTRIES : 24 * ENTRIES] = 7
    assert space.array[7 * ENTRIES] == 7 * ENTRIES
    assert space.array[24 * ENTRIES] == 24 * ENTRIES


def mappings_now() -> int:
    """Returns the count of this process's mappings of unnamed files."""
    return sum("(deleted)" in line for line in Path("/proc/self/maps").read_text().splitlines())


def blocks_of(space: PagedSpace) -> int:
    """Returns the disk blocks of the space's file."""
    return os.fstat(space._file.number).st_blocks


def test_what_is_true_is_in_memory_once(tmp_path: Path) -> None:
    """Entries that are not all true stay as they are."""
    space = PagedSpace(tmp_path, np.dtype(np.bool_), 1024 * PAGE)
    space.array[: 600 * PAGE] = True
    assert not space.evict_if_all_true(599 * PAGE, 601 * PAGE)
    assert space.evict_if_all_true(0, 600 * PAGE)
    assert space.array[: 600 * PAGE].all()
    assert not space.array[600 * PAGE :].any()
    space.prefetch_one_range(0, 600 * PAGE)
    space.poll_in_memory(1024)
    assert (space.away, space.fetched) == (600, 0)
    space.release_range(100 * PAGE, 200 * PAGE)
    assert (space.away, int(space.array.sum())) == (500, 500 * PAGE)
    space.array[100 * PAGE] = True
    space.evict_range(100 * PAGE, 128 * PAGE)
    assert (int(space.array.sum()), space.away) == (500 * PAGE + 1, 528)


def test_a_snapshot_reads_ahead_and_counts_as_nobody(tmp_path: Path) -> None:
    space = filled(tmp_path)
    space.evict_range(8 * ENTRIES, 40 * ENTRIES)
    space.read_ahead(4 * ENTRIES, 12 * ENTRIES + 1)
    assert space.array[8 * ENTRIES : 13 * ENTRIES : ENTRIES].tolist() == [page * ENTRIES for page in range(8, 13)]
    assert in_memory(space) == [*range(13), *range(40, PAGES)]
    assert space.fetched == 0
    space.poll_in_memory(PAGES)
    assert space.fetched == 5


def test_what_is_given_back_is_zeros_and_may_be_written(tmp_path: Path) -> None:
    space = filled(tmp_path)
    space.evict_range(0, 32 * ENTRIES)
    space.release_range(8 * ENTRIES, 48 * ENTRIES)
    assert not space.array[8 * ENTRIES : 48 * ENTRIES].any()
    assert (space.away, space.array[7 * ENTRIES], space.array[48 * ENTRIES]) == (8, 7 * ENTRIES, 48 * ENTRIES)
    space.array[8 * ENTRIES : 48 * ENTRIES] = 1
    space.evict_range(8 * ENTRIES, 48 * ENTRIES)
    assert space.array[8 * ENTRIES : 48 * ENTRIES].tolist() == [1] * 40 * ENTRIES
    assert space.away == 48


def run(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    begin = (
        "import sys; from pathlib import Path; from tests.table.page_cache.test_page_file import *; folder = Path(sys.argv[1])\n"
    )
    return subprocess.run(
        [sys.executable, "-c", begin + text, str(folder)], capture_output=True, text=True, check=False, timeout=180
    )


def test_writing_to_what_left_ends_the_process_and_nothing_is_wrong(tmp_path: Path) -> None:
    done = run("space = filled(folder); space.evict_range(0, ENTRIES); space.array[0] = 1; print('went on')", tmp_path)
    assert (done.returncode, done.stdout) == (-11, "")


def test_a_full_disk_is_an_error_and_all_is_as_it_was(tmp_path: Path) -> None:
    """A file that may not grow simulates a full disk: the same call fails."""
    text = """
import resource
space = filled(folder)
space.evict_range(0, 8 * ENTRIES)
resource.setrlimit(resource.RLIMIT_FSIZE, (8 * PAGE, 8 * PAGE))
try:
    space.evict_range(8 * ENTRIES, 16 * ENTRIES)
except PageFileError as error:
    print(error)
assert space.array.tolist() == list(range(PAGES * ENTRIES))
space.array[8 * ENTRIES] = 1
"""
    done = run(text, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("HS-0605 the page file cannot be written\n  File too large\n  hint: free space")


def test_a_folder_that_is_memory_or_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PageFileError, match="no page file can be created"):
        Budget(1 << 20, tmp_path / "none")
    check_folder(tmp_path)
    shared = Path("/dev/shm")
    if shared.is_dir() and system.is_in_memory_only(PageFile(shared).number):
        with pytest.raises(UsageError, match="is in memory"):
            check_folder(shared)


def test_a_folder_without_nameless_files_gives_one_that_loses_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some network folders are such. A file of a killed process, or of another one, does not matter."""
    (tmp_path / f".hotspare-pages-{os.getpid()}").touch()
    real = os.open

    def without(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "not here")
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", without)
    files = [PageFile(tmp_path) for _ in range(2)]
    files[0].write(memoryview(mmap.mmap(-1, PAGE)), 0)
    assert [path.name for path in tmp_path.iterdir()] == [f".hotspare-pages-{os.getpid()}"]


def test_runs_of_numbers() -> None:
    assert system.runs(np.array([1, 2, 5, 7, 8, 9])).tolist() == [[1, 3], [5, 6], [7, 10]]
    assert system.runs(np.empty(0, np.int64)).tolist() == []
