"""Invalid UTF-8 is found in many texts at once as Python finds it in each."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hotspare.formats.utf8 import is_utf8, not_utf8

PIECES = st.one_of(st.binary(max_size=4), st.text(max_size=3).map(str.encode), st.sampled_from([b"\xed\xa0\x80", b"\xe2\x82"]))
TEXTS = st.lists(PIECES, max_size=4).map(b"".join).map(lambda text: text.replace(b"\n", b""))


@given(st.lists(TEXTS, min_size=1, max_size=5))
def test_a_text_is_told_whatever_stands_beside_it(texts: list[bytes]) -> None:
    ends = np.cumsum([len(text) + 1 for text in texts])
    places = not_utf8(np.frombuffer(b"".join(text + b"\n" for text in texts), np.uint8))
    told = set(np.searchsorted(ends, places, side="right").tolist())
    assert told == {number for number, text in enumerate(texts) if not is_utf8(text)}


def test_every_first_and_second_byte_is_told_as_python_tells_it() -> None:
    pairs = [bytes([first, second]) for first in range(128, 256) for second in range(256)]
    texts = [pair + rest for pair in pairs for rest in (b"", b"\x80", b"\x80\x80")]
    texts = [text for text in texts if b"\n" not in text]
    ends = np.cumsum([len(text) + 1 for text in texts])
    places = not_utf8(np.frombuffer(b"".join(text + b"\n" for text in texts), np.uint8))
    told = set(np.searchsorted(ends, places, side="right").tolist())
    assert told == {number for number, text in enumerate(texts) if not is_utf8(text)}
