"""Loops over fields: UTF-8 as Python judges it; words by their letters in any case."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.formats import loops
from hotspare.formats.csv.decode import FLAG_WORDS, OPCODE_WORDS, WORD_NUMBERS, WordCodes
from hotspare.formats.utf8 import is_utf8

PIECES = st.one_of(st.binary(max_size=4), st.text(max_size=3).map(str.encode), st.sampled_from([b"\xed\xa0\x80", b"\xe2\x82"]))


def _is_utf8(text: bytes) -> bool:
    return bool(loops.is_utf8(np.frombuffer(b"\xff" + text + b"\x80", np.uint8), 1, 1 + len(text)))


@given(st.lists(PIECES, max_size=4).map(b"".join))
def test_a_text_is_judged_as_python_judges_it(text: bytes) -> None:
    assert _is_utf8(text) == is_utf8(text)


def test_every_first_and_second_byte_is_judged_as_python_judges_it() -> None:
    pairs = [bytes([first, second]) for first in range(128, 256) for second in range(256)]
    texts = [pair + rest for pair in pairs for rest in (b"", b"\x80", b"\x80\x80")]
    assert [_is_utf8(text) for text in texts] == [is_utf8(text) for text in texts]


def _word(text: bytes, words: int) -> int:
    key = loops.word_key(np.frombuffer(text + b"x", np.uint8), 0, len(text), words)
    return int(loops.word_value(WORD_NUMBERS, np.uint64(key)))


@pytest.mark.parametrize(("words", "table"), [(0, OPCODE_WORDS), (1, FLAG_WORDS)])
def test_words(words: int, table: WordCodes) -> None:
    for word, number in zip(table.texts.to_pylist(), table.numbers.tolist(), strict=True):
        expected = number if len(word) <= loops.WORD_BYTES_MAX else -1
        assert [_word(each.encode(), words) for each in (word, word.title())] == [expected, expected]
    assert {_word(text, words) for text in (b"", b" i", b"i ", b"\0i", b"ii", b"nn", b"\xc3\xa4", b"q")} == {-1}
