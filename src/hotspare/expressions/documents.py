"""Functions of JSON and XML documents, and of encoded texts: base64, URLs, digests. Text is UTF-8.

A document is parsed once for all functions that read it in a batch.

A document is bounded in bytes and in depth, equally in every engine. XML may have no document type and no entities of its own, and
the parser reads nothing outside of the text.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, TypeAlias
from urllib.parse import quote, quote_plus, unquote_plus

import numpy as np
import pyarrow as pa
from lxml import etree

from hotspare.expressions.casts import double_text
from hotspare.expressions.frame import Frame, Value
from hotspare.expressions.function import INT32, INT64, LIST, STRING, Evaluate, Fallibility, Function, eager, fixed_rule
from hotspare.expressions.text import python_kernel, value_function
from hotspare.expressions.tree import TypedCall, ValueType

DOCUMENT_BYTES_MAX = 4 << 20
DEPTH_MAX = 100
ITEMS_MAX = 10_000
"""The maximum number of items of a document, and so of events that one document is split into."""
PATH_LENGTH_MAX = 1_000
_STEP = re.compile(r"""\.?([^.\[\]"'\s]+)|\[\s*(-?[0-9]{1,9}|\*)\s*\]|\[\s*(?:"([^"]*)"|'([^']*)')\s*\]|(\.\*)""")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_EVERY = object()
Path: TypeAlias = tuple[Any, ...]
"""The steps of a JSON path: names, indexes from 0, and _EVERY for all values of a level."""
_NOT_CACHED = object()
_FORM_SAFE = "*-._"
"""The characters that the form encoding of URLs does not change, besides letters and digits."""
_SHA2 = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}
BLOB = ValueType.BLOB


class InvalidDocument(Exception):
    """Raised if a text is not a document, or if the document exceeds a limit."""


@lru_cache(maxsize=1024)
def json_path(text: str) -> Path:
    """Returns the steps of a path such as `a.b[0]['c d']`, optionally with a leading `$`. `*` and `[*]` mean all values of a level.
    Raises ValueError if the path is invalid.
    """
    if len(text) > PATH_LENGTH_MAX:
        raise ValueError(f"the path is longer than {PATH_LENGTH_MAX} characters")
    steps: list[Any] = []
    at = 1 if text.startswith("$") else 0
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None or not found.group():
            raise ValueError(f"{text[at:][:20]!r} is not a step of a path")
        name, index, *quoted, _ = found.groups()
        if index is not None:
            steps.append(_EVERY if index == "*" else int(index))
        elif name is not None:
            steps.append(_EVERY if name == "*" else name)
        else:
            steps.append(next(q for q in quoted if q is not None))
        at = found.end()
    return tuple(steps)


def parsed_json(text: str) -> Any:
    """Returns the parsed document. Raises InvalidDocument if the text is invalid, too large or too deep."""
    if len(text) > DOCUMENT_BYTES_MAX or len(text.encode("utf-8", "surrogatepass")) > DOCUMENT_BYTES_MAX:
        raise InvalidDocument(f"the document has more than {DOCUMENT_BYTES_MAX} bytes")
    if text.count("[") + text.count("{") > DEPTH_MAX and _depth(text) > DEPTH_MAX:
        raise InvalidDocument(f"the document is nested more than {DEPTH_MAX} deep")
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise InvalidDocument("the text is not JSON") from None


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _depth(text: str) -> int:
    bare = np.frombuffer(_STRING.sub("", text).encode("utf-8", "surrogatepass"), np.uint8)
    steps = np.isin(bare, list(b"[{")).astype(np.int64) - np.isin(bare, list(b"]}"))
    return int(np.cumsum(steps).max(initial=0))


def json_values_at(document: Any, path: Path) -> list[Any]:
    """Returns all values of the document that `path` matches, in document order."""
    found = [document]
    for step in path:
        found = [value for each in found for value in _stepped(each, step)]
    return found


def _stepped(value: Any, step: Any) -> Sequence[Any]:
    if step is _EVERY:
        return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else ()
    if isinstance(step, int):
        return (value[step],) if isinstance(value, list) and -len(value) <= step < len(value) else ()
    return (value[step],) if isinstance(value, dict) and step in value else ()


def json_text(value: Any) -> str | None:
    """Returns a string unchanged, None for null, and any other value as JSON text."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def parsed_xml(text: str) -> Any:
    """Returns the root element. Raises InvalidDocument if the text is invalid, too large, too deep, or has a document type."""
    if len(text) > DOCUMENT_BYTES_MAX:
        raise InvalidDocument(f"the document has more than {DOCUMENT_BYTES_MAX} bytes")
    if "<!DOCTYPE" in text:
        raise InvalidDocument("the document has a document type, which is not accepted")
    parser = etree.XMLParser(
        encoding="utf-8",
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        return etree.fromstring(_DECLARATION.sub("", text.lstrip("\ufeff \t\r\n"), count=1).encode("utf-8"), parser)
    except (etree.XMLSyntaxError, UnicodeEncodeError, ValueError):
        raise InvalidDocument("the text is not XML") from None


_DECLARATION = re.compile(r"^<\?xml[^>]*\?>")


@lru_cache(maxsize=1024)
def compile_xpath(text: str) -> Any:
    """Returns the compiled XPath. Raises ValueError if the path is invalid."""
    if len(text) > PATH_LENGTH_MAX:
        raise ValueError(f"the path is longer than {PATH_LENGTH_MAX} characters")
    try:
        path = etree.XPath(text, regexp=False, smart_strings=False)
        path(etree.Element("a"))
    except (etree.XPathError, ValueError) as error:
        raise ValueError(str(error) or "it is not a path") from None
    return path


def xml_values_at(element: Any, path: Any) -> list[Any]:
    """Returns the results of the compiled XPath `path` on `element`: elements or texts, or a list with one boolean, number
    or text.
    """
    found = path(element)
    return found if isinstance(found, list) else [found]


def xml_text(found: Any) -> str:
    """Returns the text of a result of an XPath: for an element the text of all its descendants, for any other result its value as
    text.
    """
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, float):
        return str(int(found)) if found.is_integer() else double_text(found)
    return "".join(found.itertext()) if isinstance(found, etree._Element) else str(found)


def xml_source(found: Any) -> str:
    """Returns an element as XML source, and any other result of an XPath as its text."""
    if isinstance(found, etree._Element):
        return str(etree.tostring(found, encoding="unicode", with_tail=False))
    return xml_text(found)


class InvalidDocumentPolicy(Enum):
    """The result of a function for a malformed document: the row fails, or the value is null."""

    FAILS = "fails"
    NULL = "null"


def _document_function(
    parse: Callable[[str], Any],
    path_of: Callable[[str], Any],
    answer: Callable[..., Any],
    wrong: InvalidDocumentPolicy = InvalidDocumentPolicy.FAILS,
) -> Evaluate:
    """Returns a kernel for (text, path, further constants) that parses each distinct document once per batch.

    `parse` parses a text, `path_of` a path. `answer(document, path, *constants)` computes the value. `wrong`: the policy for
    malformed documents.
    """

    def kernel(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
        if any(argument.as_py() is None for argument in arguments[1:]):
            return pa.scalar(None, call.type.arrow)
        path, rest = path_of(arguments[1].as_py()), [argument.as_py() for argument in arguments[2:]]
        known = frame.memo.setdefault(parse, {})
        made: list[Any] = []
        failed: dict[str, list[int]] = {}
        for row, text in enumerate(frame.array(arguments[0]).to_pylist()):
            if text is None:
                made.append(None)
                continue
            document = known.get(text, _NOT_CACHED)
            if document is _NOT_CACHED:
                document = known[text] = _parsed(parse, text)
            if isinstance(document, InvalidDocument):
                failed.setdefault(str(document), []).append(row)
                made.append(None)
                continue
            try:
                made.append(answer(document, path, *rest))
            except InvalidDocument as refused:
                failed.setdefault(str(refused), []).append(row)
                made.append(None)
        for message, rows in failed.items() if wrong is InvalidDocumentPolicy.FAILS else ():
            frame.fail(np.array(rows, np.int64), message)
        return pa.array(made, call.type.arrow)

    return eager(kernel)


def _parsed(parse: Callable[[str], Any], text: str) -> Any:
    """Returns the parsed document, None for a blank text, or, instead of raising it, the InvalidDocument of an invalid text."""
    if not text.strip():
        return None
    try:
        return parse(text)
    except InvalidDocument as refused:
        return refused


def _json_value(document: Any, path: Path) -> str | None:
    found = json_values_at(document, path)
    return json_text(found[0]) if found else None


def _json_items(document: Any, path: Path) -> list[str | None]:
    """Returns the items of a list as texts if the path matches just that list, else the texts of all matched values. Raises
    InvalidDocument for more than ITEMS_MAX.
    """
    found = json_values_at(document, path)
    items = found[0] if len(found) == 1 and isinstance(found[0], list) else found
    _check_items(items)
    return [json_text(item) for item in items]


def _json_size(document: Any, path: Path) -> int | None:
    found = json_values_at(document, path)
    return len(found[0]) if found and isinstance(found[0], list | dict) else None


def _xpath(element: Any, path: Any, separator: str | None = None) -> str | None:
    if element is None:
        return None
    found = xml_values_at(element, path)
    if not found:
        return None
    return xml_text(found[0]) if separator is None else separator.join(map(xml_text, found))


def _xml_items(element: Any, path: Any) -> list[str] | None:
    if element is None:
        return None
    found = xml_values_at(element, path)
    _check_items(found)
    return [xml_source(each) for each in found]


def _check_items(items: Sequence[Any]) -> None:
    if len(items) > ITEMS_MAX:
        raise InvalidDocument(f"the document has more than {ITEMS_MAX} items")


JSON_FUNCTIONS, XML_FUNCTIONS = ("json", "get_json_object", "json_items", "json_size"), ("xpath", "xml_items")


def _read(decode: Callable[[str], object], message: str) -> Evaluate:
    """Returns a kernel that applies `decode` to each text. A row for which `decode` raises ValueError fails with `message`; null
    stays null.
    """

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


def _decode_url(text: str) -> str:
    """Returns the decoded text. Raises ValueError if two hexadecimal digits are missing after a percent sign, as Java does."""
    at = text.find("%")
    while at >= 0:
        bytes.fromhex(text[at + 1 : at + 3].ljust(2, "x"))
        at = text.find("%", at + 1)
    return unquote_plus(text, errors="strict")


def _sha2(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
    name = _SHA2.get(arguments[1].as_py())
    if name is None:
        return pa.scalar(None, pa.string())
    return python_kernel(lambda t: hashlib.new(name, t.encode(), usedforsecurity=False).hexdigest())(frame, call, arguments[:1])


_ONE = fixed_rule(STRING, STRING)
ROW = Fallibility.ROW
_NO_BASE64, _NO_URL = "the text is not base64 of UTF-8", "the text is not an encoded URL"

FUNCTIONS: tuple[Function, ...] = (
    Function(
        "json",
        fixed_rule(STRING, STRING, STRING),
        _document_function(parsed_json, json_path, _json_value),
        "json(text, path): the value at a path such as a.b[0], objects and lists as JSON; null if none; invalid JSON fails",
        (),
        ("json", "jsonvalue"),
        ROW,
        (1,),
    ),
    Function(
        "get_json_object",
        fixed_rule(STRING, STRING, STRING),
        _document_function(parsed_json, json_path, _json_value, InvalidDocumentPolicy.NULL),
        "get_json_object(text, path): as json(...); null for invalid JSON",
        ("get_json_object",),
        literal_arguments=(1,),
    ),
    Function(
        "json_items",
        fixed_rule(LIST, STRING, STRING),
        _document_function(parsed_json, json_path, _json_items),
        "jsonItems(text, path): the items of a list, as a list",
        (),
        ("jsonitems",),
        ROW,
        (1,),
    ),
    Function(
        "json_size",
        fixed_rule(INT32, STRING, STRING),
        _document_function(parsed_json, json_path, _json_size),
        "jsonSize(text, path): the count of items of a list or object; null if there is none",
        (),
        ("jsonsize",),
        ROW,
        (1,),
    ),
    Function(
        "xpath",
        fixed_rule(STRING, STRING, STRING, STRING, required=2),
        _document_function(parsed_xml, compile_xpath, _xpath),
        "xpath(text, path[, separator]): the text of the first that a path leads to, of all if there is a separator; null if "
        "nothing is there; invalid XML fails",
        (),
        ("xpath",),
        ROW,
        (1, 2),
    ),
    Function(
        "xml_items",
        fixed_rule(LIST, STRING, STRING),
        _document_function(parsed_xml, compile_xpath, _xml_items),
        "xmlItems(text, path): all that a path leads to, elements as XML, as a list",
        (),
        ("xmlitems",),
        ROW,
        (1,),
    ),
    Function(
        "base64_encode",
        _ONE,
        value_function(lambda t: base64.b64encode(t.encode()).decode()),
        "base64 of a text",
        esp_names=("base64encode",),
    ),
    Function(
        "base64_decode",
        _ONE,
        _read(lambda t: _bytes(t).decode(), _NO_BASE64),
        "the text of base64; invalid base64 fails",
        esp_names=("base64decode",),
        fallibility=ROW,
    ),
    Function(
        "base64_encode_binary",
        fixed_rule(STRING, BLOB),
        value_function(lambda b: base64.b64encode(b).decode()),
        "base64 of a blob",
        esp_names=("base64encodebinary",),
    ),
    Function(
        "base64_decode_binary",
        fixed_rule(BLOB, STRING),
        _read(_bytes, "the text is not base64"),
        "the blob of base64; invalid base64 fails",
        esp_names=("base64decodebinary",),
        fallibility=ROW,
    ),
    Function(
        "url_encode",
        _ONE,
        value_function(lambda t: quote(t, safe="-_.~")),
        "a text as a part of a URL, a blank as %20",
        esp_names=("urlencode",),
    ),
    Function(
        "form_encode",
        _ONE,
        value_function(lambda t: quote_plus(t, safe=_FORM_SAFE).replace("~", "%7E")),
        "a text as a part of a form, a blank as +",
        ("url_encode",),
    ),
    Function(
        "url_decode",
        _ONE,
        _read(_decode_url, _NO_URL),
        "the text of a part of a URL or form; a wrong one fails",
        ("url_decode",),
        ("urldecode",),
        ROW,
    ),
    Function(
        "md5",
        _ONE,
        value_function(lambda t: hashlib.md5(t.encode(), usedforsecurity=False).hexdigest()),
        "MD5 of a text, hexadecimal",
        ("md5",),
        ("md5",),
    ),
    Function(
        "sha1",
        _ONE,
        value_function(lambda t: hashlib.sha1(t.encode(), usedforsecurity=False).hexdigest()),
        "SHA-1 of a text, hexadecimal",
        ("sha1", "sha"),
        ("sha1",),
    ),
    Function(
        "sha2",
        fixed_rule(STRING, STRING, INT32),
        eager(_sha2),
        "sha2(text, bits): SHA-2, hexadecimal; null unless bits are 0, 224, 256, 384 or 512",
        ("sha2",),
        ("sha2",),
        literal_arguments=(1,),
    ),
    Function(
        "crc32",
        fixed_rule(INT64, STRING),
        value_function(lambda t: zlib.crc32(t.encode())),
        "CRC-32 of a text",
        ("crc32",),
        ("crc32",),
    ),
)
