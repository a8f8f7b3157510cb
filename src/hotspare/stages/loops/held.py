"""Loops over changes that wait for a pulse (see `stages.emission`), folded by key or in order of arrival.

A row of the relation that holds them is an entry. A folded entry has images, each a row of the window: WAS, the row at the last
pulse; NOW; and, if changes by retention are kept apart, BETWEEN. After the images there is, for each of them, 1 if it has a row.
Then follow the flags of the newest change and of the change before it, 0 if there is none. The earlier change leads from WAS to
BETWEEN, the newest from BETWEEN to NOW. An entry that is not folded is one event: a row, its opcode, its flags and its number.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hotspare.rows.chunk import Bools, Int64s, UInt8s
from hotspare.rows.compile import Whole, kernel
from hotspare.table.loops.index import (
    NONE,
    add,
    agree,
    enter,
    entry_of,
    find,
    has_all,
    has_room,
    key_hash,
    place_of,
    replace,
    slot_at,
)
from hotspare.table.loops.pages import Rows, free_slot, is_ready, take_slot, tidy
from hotspare.table.loops.relation import (
    DELETE,
    INSERT,
    REFUSED_NULL_KEY,
    RETENTION,
    SAFE_DELETE,
    UPDATE_BLOCK,
    Policy,
    give_up,
    insert_row,
    replace_row,
    whole_flags,
)
from hotspare.table.loops.slots import FIRST, LIVE

AT, REFUSED = 0, 1
"""Entries of `counts`: events applied, and events refused."""
COUNTS_WIDTH = 2
DONE, NEEDS_ROOM = np.int64(0), np.int64(1)
ENTRY_ROWS_MAX = 4
"""The most rows that one entry emits: two update blocks."""


WAS, NOW, BETWEEN = np.int64(0), np.int64(1), np.int64(2)
"""The images of an entry: the row at the last pulse, the row now, and the row between an earlier and the newest change."""
EVENT_FIELDS = 3
"""The number of columns that the entry of an event that is not folded has after its row: opcode, flags, number."""


class EntryShape(NamedTuple):
    """The columns of an entry. `width`: the count of the window's fields; `images`: 2 or 3, or 0 if nothing is folded.

    `presence_column`: the first of the columns that tell whether an image has a row; `flags`: the first column with flags. If
    nothing is folded, these are the columns of the event's opcode and of its flags.
    """

    width: int
    images: int
    presence_column: int
    flags: int


class EventArrays(NamedTuple):
    """A chunk of events, and the columns `keys` of their key. `numbers`, int64[n, 1]: the numbers of events that are not folded."""

    opcode: UInt8s
    flags: UInt8s
    lanes: Int64s
    valid: Bools
    keys: Int64s
    numbers: Int64s


class ReleasedRows(NamedTuple):
    """Arrays for emitted rows. They have room for ENTRY_ROWS_MAX more rows than the caller requests."""

    opcode: UInt8s
    flags: UInt8s
    lanes: Int64s
    valid: Bools


@kernel
def new_entry(rows: Rows) -> Whole:
    """Allocates an entry in which all fields are null. Returns its slot."""
    slot = take_slot(rows)
    for j in range(rows.lanes.shape[1]):
        rows.lanes[slot, j] = 0
        rows.valid[slot, j] = False
    return slot


@kernel
def copy_fields(rows: Rows, slot: Whole, begin: Whole, width: Whole, lanes: Int64s, valid: Bools, row: Whole, at: Whole) -> None:
    """Copies `width` fields of `lanes[row]`, from column `at` on, to the entry at `slot`, from column `begin` on."""
    for j in range(width):
        rows.lanes[slot, begin + j] = lanes[row, at + j]
        rows.valid[slot, begin + j] = valid[row, at + j]


@kernel
def set_entry_column(rows: Rows, slot: Whole, column: Whole, number: Whole) -> None:
    rows.lanes[slot, column] = number
    rows.valid[slot, column] = True


@kernel
def set_entry_image(rows: Rows, slot: Whole, shape: EntryShape, image: Whole, events: EventArrays, row: Whole) -> None:
    """Writes event row `row` as an image of the entry at `slot`. NONE writes that the image has no row."""
    if row >= 0:
        copy_fields(rows, slot, image * shape.width, shape.width, events.lanes, events.valid, row, 0)
    set_entry_column(rows, slot, shape.presence_column + image, np.int64(row >= 0))


@kernel
def copy_entry_image(rows: Rows, slot: Whole, shape: EntryShape, image: Whole, old: Whole, of: Whole) -> None:
    """Copies image `of` of the entry `old` to image `image` of the entry at `slot`."""
    there = rows.lanes[old, shape.presence_column + of]
    if there == 1:
        copy_fields(rows, slot, image * shape.width, shape.width, rows.lanes, rows.valid, old, of * shape.width)
    set_entry_column(rows, slot, shape.presence_column + image, there)


@kernel
def set_entry_key(rows: Rows, slot: Whole, keys: Int64s, lanes: Int64s, row: Whole) -> None:
    """Writes the key by which the entry is found. It is in the columns of WAS, even if there was no row at the last pulse."""
    for k in range(len(keys)):
        set_entry_column(rows, slot, keys[k], lanes[row, keys[k]])


@kernel
def create_entry(rows: Rows, policy: Policy, shape: EntryShape, events: EventArrays, was: Whole, now: Whole, flags: Whole) -> Whole:
    """Creates the entry of a key whose first change since the last pulse is from row `was` to row `now`; either may be NONE.
    Returns its slot.
    """
    slot = new_entry(rows)
    set_entry_image(rows, slot, shape, WAS, events, was)
    set_entry_key(rows, slot, events.keys, events.lanes, was if was >= 0 else now)
    set_entry_image(rows, slot, shape, NOW, events, now)
    set_entry_column(rows, slot, shape.flags, flags)
    if shape.images == 3:
        set_entry_column(rows, slot, shape.presence_column + BETWEEN, np.int64(0))
        set_entry_column(rows, slot, shape.flags + 1, np.int64(0))
    insert_row(rows, policy, slot)
    return slot


@kernel
def is_of_retention(flags: Whole) -> bool:
    return bool(np.int64(flags & RETENTION) != 0)


@kernel
def change_entry(rows: Rows, policy: Policy, shape: EntryShape, events: EventArrays, old: Whole, now: Whole, flags: Whole) -> Whole:
    """Adds the change to row `now` (NONE: a delete) to the entry `old` of a key. Returns the slot of the new version; NONE if
    nothing is left to emit for the key.

    If changes differ in whether retention made them, two are kept: the newest one, and one for all changes before it.
    """
    before: Whole = np.int64(0)
    between: Whole = BETWEEN
    if shape.images == 3:
        before = np.int64(rows.lanes[old, shape.flags + 1])
        if is_of_retention(rows.lanes[old, shape.flags]) != is_of_retention(flags):
            before, between = np.int64(rows.lanes[old, shape.flags]), NOW
    was_there = rows.lanes[old, shape.presence_column + WAS] == 1
    if before != 0 and rows.lanes[old, shape.presence_column + between] == 0:
        if not was_there:  # the earlier changes cancel out
            before = np.int64(0)
        elif now < 0:  # the newest change has no effect
            before, flags = np.int64(0), before
    if before == 0 and not was_there and now < 0:
        return NONE
    slot = new_entry(rows)
    set_entry_key(rows, slot, rows.keys, rows.lanes, old)
    copy_entry_image(rows, slot, shape, WAS, old, WAS)
    set_entry_image(rows, slot, shape, NOW, events, now)
    set_entry_column(rows, slot, shape.flags, flags)
    if shape.images == 3:
        set_entry_column(rows, slot, shape.flags + 1, before)
        set_entry_column(rows, slot, shape.presence_column + BETWEEN, np.int64(0))
        if before != 0:
            copy_entry_image(rows, slot, shape, BETWEEN, old, between)
    replace_row(rows, policy, slot, old)
    free_slot(rows, old)
    return slot


@kernel
def has_same_key(events: EventArrays, a: Whole, b: Whole) -> bool:
    same = agree(events.lanes, a, events.keys, events.lanes, b, events.keys)
    return bool(same and has_all(events.valid, b, events.keys))


@kernel
def fold_events(
    rows: Rows, policy: Policy, shape: EntryShape, events: EventArrays, until: Whole, refused: Int64s, counts: Int64s
) -> Whole:
    """Folds resolved events before row `until` into entries. Returns DONE, or NEEDS_ROOM if pages or index have no room for the
    next event. Events with a null key are written to `refused`.

    An update block whose rows have different keys is an insert and a delete.
    """
    i = np.int64(counts[AT])
    while i < until:
        if not has_all(events.valid, i, events.keys):
            refused[counts[REFUSED], 0], refused[counts[REFUSED], 1] = i, REFUSED_NULL_KEY
            counts[REFUSED] += 1
            i += 1
            continue
        h = key_hash(events.lanes, i, events.keys)
        if not is_ready(rows) or not has_room(rows.by_key, h):
            break
        tidy(rows, np.int64(0))
        opcode, flags = np.int64(events.opcode[i]), whole_flags(events.flags[i])
        was, now, taken = NONE, i, np.int64(1)
        if DELETE <= opcode <= SAFE_DELETE:
            was, now = i, NONE
        elif opcode == UPDATE_BLOCK and has_same_key(events, i, i + 1):
            was, taken = i + 1, np.int64(2)
        place = find(rows.by_key, rows.lanes, rows.keys, events.lanes, i, events.keys, h)
        old = slot_at(rows.by_key, place)
        if old < 0:
            enter(rows.by_key, place, entry_of(h, create_entry(rows, policy, shape, events, was, now, flags)))
        else:
            slot = change_entry(rows, policy, shape, events, old, now, flags)
            if slot < 0:
                give_up(rows, policy, old, place)
            else:
                replace(rows.by_key, place, entry_of(h, slot))
        i += taken
    counts[AT] = i
    return DONE if i >= until else NEEDS_ROOM


@kernel
def append_events(rows: Rows, policy: Policy, shape: EntryShape, events: EventArrays, until: Whole, counts: Int64s) -> Whole:
    """Stores events before row `until` as entries, unchanged. Returns DONE, or NEEDS_ROOM if pages or index have no room for the
    next event.
    """
    i = np.int64(counts[AT])
    while i < until:
        h = key_hash(events.numbers, i, events.keys)
        if not is_ready(rows) or not has_room(rows.by_key, h):
            break
        tidy(rows, np.int64(0))
        slot = new_entry(rows)
        copy_fields(rows, slot, 0, shape.width, events.lanes, events.valid, i, 0)
        set_entry_column(rows, slot, shape.presence_column, np.int64(events.opcode[i]))
        set_entry_column(rows, slot, shape.flags, np.int64(events.flags[i]))
        set_entry_column(rows, slot, shape.flags + 1, events.numbers[i, 0])
        add(rows.by_key, h, slot)
        insert_row(rows, policy, slot)
        i += 1
    counts[AT] = i
    return DONE if i >= until else NEEDS_ROOM


@kernel
def emit_image(
    rows: Rows, shape: EntryShape, slot: Whole, image: Whole, opcode: Whole, flags: Whole, out: ReleasedRows, at: Whole
) -> Whole:
    out.opcode[at], out.flags[at] = opcode, flags
    for j in range(shape.width):
        out.lanes[at, j] = rows.lanes[slot, image * shape.width + j]
        out.valid[at, j] = rows.valid[slot, image * shape.width + j]
    return np.int64(at + 1)


@kernel
def emit_image_change(
    rows: Rows, shape: EntryShape, slot: Whole, a: Whole, b: Whole, flags: Whole, out: ReleasedRows, at: Whole
) -> Whole:
    """Writes the change from image `a` to image `b`: an insert, an update block, a delete, or nothing. Returns the place of the
    next output.
    """
    was_there, is_there = rows.lanes[slot, shape.presence_column + a] == 1, rows.lanes[slot, shape.presence_column + b] == 1
    if is_there:
        at = emit_image(rows, shape, slot, b, UPDATE_BLOCK if was_there else INSERT, flags, out, at)
    if was_there:
        at = emit_image(rows, shape, slot, a, DELETE, flags, out, at)
    return at


@kernel
def release_entries(rows: Rows, policy: Policy, shape: EntryShape, out: ReleasedRows, room: Whole) -> Whole:
    """Removes and emits entries, oldest first, until none is left or `room` rows are written; an update block is never split.
    Returns the number of rows written.
    """
    at: Whole = np.int64(0)
    while rows.state[LIVE] > 0 and (at < room or (at > 0 and out.opcode[at - 1] == UPDATE_BLOCK)):
        slot = np.int64(rows.state[FIRST])
        if shape.images == 0:
            at = emit_image(rows, shape, slot, 0, rows.lanes[slot, shape.presence_column], rows.lanes[slot, shape.flags], out, at)
        else:
            flags, before = rows.lanes[slot, shape.flags], np.int64(0)
            if shape.images == 3:
                before = rows.lanes[slot, shape.flags + 1]
            if before != 0:
                at = emit_image_change(rows, shape, slot, WAS, BETWEEN, before, out, at)
                at = emit_image_change(rows, shape, slot, BETWEEN, NOW, flags, out, at)
            else:
                at = emit_image_change(rows, shape, slot, WAS, NOW, flags, out, at)
        give_up(rows, policy, slot, place_of(rows.by_key, key_hash(rows.lanes, slot, rows.keys), slot))
    return at
