"""Texts written otherwise: base64, URLs, digests. Text is UTF-8."""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from collections.abc import Callable
from urllib.parse import quote, quote_plus, unquote_plus

import numpy as np
import pyarrow as pa

from hotspare.expressions.frame import Frame, Value
from hotspare.expressions.function import INT32, INT64, STRING, Evaluate, Fallibility, Function, eager, fixed
from hotspare.expressions.text import each_value, row_by_row
from hotspare.expressions.tree import TypedCall, ValueType

_FORM_SAFE = "*-._"
"""What the form encoding of URLs leaves as it is, beside letters and digits."""
_SHA2 = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}
BLOB = ValueType.BLOB


def _read(decode: Callable[[str], object], message: str) -> Evaluate:
    """A function of texts, some of which are wrong."""

    def kernel(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
        made: list[object] = []
        wrong: list[int] = []
        for row, text in enumerate(frame.array(arguments[0]).to_pylist()):
            try:
                made.append(None if text is None else decode(text))
            except (ValueError, binascii.Error):
                made.append(None)
                wrong.append(row)
        frame.fail(np.array(wrong, np.int64), message)
        return pa.array(made, call.type.arrow)

    return eager(kernel)


def _bytes(text: str) -> bytes:
    return base64.b64decode("".join(text.split()), validate=True)


def _unquoted(text: str) -> str:
    """ValueError where a sign of per cent has no two digits behind it, as Java has it."""
    at = text.find("%")
    while at >= 0:
        bytes.fromhex(text[at + 1 : at + 3].ljust(2, "x"))
        at = text.find("%", at + 1)
    return unquote_plus(text, errors="strict")


def _sha2(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
    name = _SHA2.get(arguments[1].as_py())
    if name is None:
        return pa.scalar(None, pa.string())
    return row_by_row(lambda t: hashlib.new(name, t.encode(), usedforsecurity=False).hexdigest())(frame, call, arguments[:1])


_ONE = fixed(STRING, STRING)
ROW = Fallibility.ROW
_NO_BASE64, _NO_URL = "the text is no base64 of UTF-8", "the text is no encoded URL"

FUNCTIONS: tuple[Function, ...] = (
    Function(
        "base64_encode",
        _ONE,
        each_value(lambda t: base64.b64encode(t.encode()).decode()),
        "base64 of a text",
        esp=("base64encode",),
    ),
    Function(
        "base64_decode",
        _ONE,
        _read(lambda t: _bytes(t).decode(), _NO_BASE64),
        "the text that base64 says; what is none fails",
        esp=("base64decode",),
        fallibility=ROW,
    ),
    Function(
        "base64_encode_binary",
        fixed(STRING, BLOB),
        each_value(lambda b: base64.b64encode(b).decode()),
        "base64 of a blob",
        esp=("base64encodebinary",),
    ),
    Function(
        "base64_decode_binary",
        fixed(BLOB, STRING),
        _read(_bytes, "the text is no base64"),
        "the blob that base64 says; what is none fails",
        esp=("base64decodebinary",),
        fallibility=ROW,
    ),
    Function(
        "url_encode",
        _ONE,
        each_value(lambda t: quote(t, safe="-_.~")),
        "a text as a part of a URL, a blank as %20",
        esp=("urlencode",),
    ),
    Function(
        "form_encode",
        _ONE,
        each_value(lambda t: quote_plus(t, safe=_FORM_SAFE).replace("~", "%7E")),
        "a text as a part of a form, a blank as +",
        ("url_encode",),
    ),
    Function(
        "url_decode",
        _ONE,
        _read(_unquoted, _NO_URL),
        "the text of a part of a URL or form; a wrong one fails",
        ("url_decode",),
        ("urldecode",),
        ROW,
    ),
    Function(
        "md5",
        _ONE,
        each_value(lambda t: hashlib.md5(t.encode(), usedforsecurity=False).hexdigest()),
        "MD5 of a text, hexadecimal",
        ("md5",),
        ("md5",),
    ),
    Function(
        "sha1",
        _ONE,
        each_value(lambda t: hashlib.sha1(t.encode(), usedforsecurity=False).hexdigest()),
        "SHA-1 of a text, hexadecimal",
        ("sha1", "sha"),
        ("sha1",),
    ),
    Function(
        "sha2",
        fixed(STRING, STRING, INT32),
        eager(_sha2),
        "sha2(text, bits): SHA-2, hexadecimal; null unless bits are 0, 224, 256, 384 or 512",
        ("sha2",),
        ("sha2",),
        literals=(1,),
    ),
    Function(
        "crc32",
        fixed(INT64, STRING),
        each_value(lambda t: zlib.crc32(t.encode())),
        "CRC-32 of a text",
        ("crc32",),
        ("crc32",),
    ),
)
