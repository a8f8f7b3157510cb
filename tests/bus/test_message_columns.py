"""Messages kept as columns equal the messages: one by one, by index, in slices."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hotspare.bus.contract import Message, MessageColumns

HEADERS = st.sampled_from([(), (("a", b"1"),), (("a", b"1"), ("b", b""))])
MESSAGES = st.lists(st.builds(Message, st.integers(0, 99), st.integers(-9, 9), st.binary(max_size=3), HEADERS), max_size=5)


@given(messages=MESSAGES, begin=st.integers(0, 6), end=st.integers(0, 6))
def test_columns_give_the_messages_that_they_were_made_of(messages: list[Message], begin: int, end: int) -> None:
    columns = MessageColumns.from_messages(messages)
    assert list(columns) == messages
    assert [columns[place] for place in range(len(columns))] == messages
    assert list(columns[begin:end]) == messages[begin:end]
    assert bool(columns.headers) == any(message.headers for message in messages)
    assert MessageColumns.from_messages(columns) is columns
