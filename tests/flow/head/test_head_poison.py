"""A message on which decoding itself fails: whatever a decoder raises, the other messages are decoded."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from hotspare.flow.head import head as head_module
from hotspare.flow.head.head import Head
from hotspare.projects.resolve import resolve
from hotspare.rows.batch import RowKind
from tests.flow.head.messages import Message, project, raw

HEAD = Head.build(resolve(project()))
MESSAGES = [Message(1, b"i,n,1,2,a"), Message(1, b"i,n,13,2,b\ni,n,4,2,b"), Message(1, None), Message(1, b"i,n,3,2,c")]


@pytest.fixture
def error(monkeypatch: pytest.MonkeyPatch) -> list[type[Exception]]:
    """Plants an error in the decoder for messages that contain 13; the class can be set."""
    raised: list[type[Exception]] = [KeyError]
    decode = head_module.decode_rows

    def failing(values: pa.Array, *rest: Any) -> Any:
        if any(b",13," in value for value in values.to_pylist()):
            raise raised[0]("planted")
        return decode(values, *rest)

    monkeypatch.setattr(head_module, "decode_rows", failing)
    return raised


def test_a_message_on_which_decoding_fails_is_a_bad_event_alone(error: list[type[Exception]]) -> None:
    decoded = HEAD.decode(raw(MESSAGES))
    assert decoded.column("kind").to_pylist() == [RowKind.EVENT, RowKind.BAD, RowKind.TICK, RowKind.EVENT]
    assert decoded.column("offset").to_pylist() == [0, 1, 2, 3]
    bad = decoded.column("bad")[1].as_py()
    assert (bad["reason"], bad["text"]) == ("poison", "i,n,13,2,b\ni,n,4,2,b")
    assert bad["message"] == "window cq/trades: the engine fails on this message (KeyError)"


def test_want_of_memory_passes(error: list[type[Exception]]) -> None:
    error[0] = MemoryError
    with pytest.raises(MemoryError):
        HEAD.decode(raw(MESSAGES))


def test_what_is_too_large_for_one_batch_comes_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """An Arrow array that cannot hold all texts of a batch; here it holds 12 bytes."""
    run_inline = Head._at_once

    def limited(self: Head, raw: pa.RecordBatch) -> pa.RecordBatch:
        decoded = run_inline(self, raw)
        if sum(len(text or "") for text in pc.struct_field(decoded.column("e1"), "name").to_pylist()) > 12:
            raise pa.ArrowInvalid("offset overflow while concatenating arrays")
        return decoded

    batch = raw([Message(1, f"i,n,{i},2,{'x' * (i % 4 + 1)}".encode()) for i in range(20)])
    expected = HEAD.decode(batch)
    monkeypatch.setattr(Head, "_at_once", limited)
    batches = HEAD(batch)
    assert len(batches) > 2
    assert pa.concat_batches(batches) == expected
