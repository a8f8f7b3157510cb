"""More examples for `test_functions`: SAS expressions and functional windows beyond SQL (SPEC A24, A25)."""

from __future__ import annotations

from decimal import Decimal

from hotspare.model.project import Dialect
from hotspare.model.types import FieldType
from tests.expressions.samples import ESP, FN, SQL

I32, I64, F64, STR, BLOB = FieldType.INT32, FieldType.INT64, FieldType.DOUBLE, FieldType.STRING, FieldType.BLOB
DOCUMENT = """'{"a":[1,{"b":"x"}],"c":null,"d":2.50}'"""
ELEMENTS = "'<a i=\"7\"><b>1</b><b>2<c>3</c></b></a>'"

MORE_EXAMPLES: dict[str, list[tuple[Dialect, str, FieldType, object]]] = {
    "substring_before": [(FN, "substringBefore($s, ', ')", STR, "Hello"), (FN, "substringBefore($s, 'zz')", STR, "")],
    "substring_after": [(FN, "substringAfter($s, ', ')", STR, "World"), (FN, "substringAfter($s, 'zz')", STR, "")],
    "normalize_space": [(FN, "normalizeSpace('  a \t b ')", STR, "a b")],
    "translate": [(FN, "translate($s, 'lo', '0')", STR, "He00, Wr0d"), (SQL, "translate(s, 'lo', '01')", STR, "He001, W1r0d")],
    "pattern": [(ESP, "pattern('Ab 12-ä')", STR, "Aa*99*a")],
    "asc": [(ESP, "asc('ä')", I32, 228), (ESP, "asc('')", I32, 0), (SQL, "ascii('A')", I32, 65)],
    "chr_of": [(ESP, "chr(228)", STR, "ä")],
    "edit_distance": [(ESP, "edit_distance('kitten', 'sitting')", I32, 3), (SQL, "levenshtein('', s)", I32, 12)],
    "has_control_chars": [(ESP, "has_control_chars('a\tb')", I32, 1), (ESP, "has_control_chars(s)", I32, 0)],
    "isalpha": [(ESP, "isalpha('äb')", I32, 1), (ESP, "isalpha('')", I32, 0)],
    "isblank": [(ESP, "isblank('  ')", I32, 1), (ESP, "isblank(s)", I32, 0)],
    "isnumber": [(ESP, "isnumber(' -1.5e3 ')", I32, 1), (ESP, "isnumber('1 2')", I32, 0)],
    "sort": [(ESP, "sort('banana')", STR, "aaabnn"), (ESP, "sort('banana', false, true)", STR, "nba")],
    "sort_words": [(ESP, "sort_words('b a b')", STR, "a b b"), (ESP, "sort_words('b a b', true, true)", STR, "a b")],
    "lpad": [(SQL, "lpad('7', 3, '0')", STR, "007"), (SQL, "lpad(s, 2, 'x')", STR, "He")],
    "rpad": [(SQL, "rpad('7', 4, 'ab')", STR, "7aba"), (SQL, "rpad(s, 2, '')", STR, "He")],
    "repeat": [(SQL, "repeat('ab', 3)", STR, "ababab"), (SQL, "repeat(s, b)", STR, "")],
    "substring_index": [
        (SQL, "substring_index('a.b.c', '.', 2)", STR, "a.b"),
        (SQL, "substring_index('a.b.c', '.', -1)", STR, "c"),
    ],
    "match_start": [(ESP, "regex r r.compile('(l+)(o)') if r.findfirst(s) then return r.matchstart() return 0", I32, 3)],
    "match_length": [
        (ESP, "regex r r.compile('(l+)(o)') if r.findfirst(s) then return r.matchlength() return 0", I32, 3),
        (ESP, "regex r r.compile('(l+)(o)') if r.findfirst(s) then return r.sublength(2) return 0", I32, 1),
    ],
    "array_item": [(ESP, "integer array n n.dim(2) n.set(2, a) return n.get(2)", I64, 7)],
    "array_with": [(ESP, "string array t t.dim(1) t.set(1, s) t.set(1, t.get(1) & '!') return t.get(1)", STR, "Hello, World!")],
    "array_resized": [(ESP, "real array r r.dim(3) r.dim(2) return r.dim()", I32, 2)],
    "rgx": [
        (FN, "rgx('(H)(e)', $s, 2)", STR, "e"),
        (FN, "rgx('l+', $s)", STR, "ll"),
        (FN, "rgx('z', $s)", STR, None),
        (ESP, "rgx(s, '(W.)', 1)", STR, "Wo"),
    ],
    "rgx_token": [(FN, "rgxToken(', *', $s, 1)", STR, "World"), (FN, "rgxToken(',', $s, 5)", STR, None)],
    "rgx_last_token": [(FN, "rgxLastToken('o', $s)", STR, "rld"), (FN, "rgxLastToken('o', $s, 2)", STR, "Hell")],
    "rgx_replace": [(FN, "rgxReplace('(l)', $s, '<$1>')", STR, "He<l>lo, World")],
    "rgx_groups": [(FN, "listItem(rgxV('(H)(e)', $s), 1)", STR, "e")],
    "rgx_matches": [(FN, "listSize(rgxMatches('l', $s))", I32, 3), (FN, "listItem(rgxMatches('(.)o', $s, 1), 1)", STR, "W")],
    "rgx_index": [(FN, "rgxIndex($s, 'z', 'o$', 'W')", I32, 2), (FN, "rgxIndex($s, 'z')", I32, -1)],
    "list_of": [(FN, "listSize(listOf('a, b ,', ','))", I32, 3), (FN, "listSize(listOf('', ','))", I32, 0)],
    "map_of": [(FN, "mapSize(mapOf('a:1,b,c:2:3', ',', ':'))", I32, 2)],
    "list_item": [(FN, "listItem(listOf('a, b', ','), 1)", STR, "b"), (FN, "listItem(listOf('a', ','), 1)", STR, None)],
    "list_size": [(FN, "listSize(listOf($s, 'o'))", I32, 3)],
    "list_index": [(FN, "listIndex(listOf('a,b,a', ','), 'a')", I32, 0), (FN, "listIndex(listOf('a', ','), 'z')", I32, -1)],
    "list_joined": [(FN, "listString(listOf('a, b', ','), '+')", STR, "a+b")],
    "set_contains": [(FN, "setContains(listOf($s, ','), 'World')", I32, 1), (FN, "setContains(listOf('a', ','), $s)", I32, 0)],
    "map_value": [
        (FN, "mapValue(mapOf('a:1, b : 2', ',', ':'), 'b')", STR, "2"),
        (FN, "mapValue(mapOf('a:1', ',', ':'), $s)", STR, None),
    ],
    "map_size": [(FN, "mapSize(mapOf('', ',', ':'))", I32, 0)],
    "json": [
        (FN, f"json({DOCUMENT}, 'a[1].b')", STR, "x"),
        (FN, f"json({DOCUMENT}, 'a')", STR, '[1,{"b":"x"}]'),
        (FN, f"json({DOCUMENT}, 'a[0]')", I64, 1),
        (FN, f"json({DOCUMENT}, 'c')", STR, None),
        (FN, f"json({DOCUMENT}, 'z.y')", STR, None),
        (FN, "json(' ', 'a')", STR, None),
    ],
    "get_json_object": [
        (SQL, "get_json_object('{\"a\": [true]}', '$.a[0]')", STR, "true"),
        (SQL, "get_json_object('{', '$.a')", STR, None),
    ],
    "json_items": [
        (FN, f"listItem(jsonItems({DOCUMENT}, 'a'), 1)", STR, '{"b":"x"}'),
        (FN, f"listSize(jsonItems({DOCUMENT}, '*'))", I32, 3),
    ],
    "json_size": [(FN, f"jsonSize({DOCUMENT}, 'a')", I32, 2), (FN, f"jsonSize({DOCUMENT}, 'd')", I32, None)],
    "xpath": [
        (FN, f"xpath({ELEMENTS}, './b/text()')", STR, "1"),
        (FN, f"xpath({ELEMENTS}, './b', '+')", STR, "1+23"),
        (FN, f"xpath({ELEMENTS}, '@i')", I32, 7),
        (FN, f"xpath({ELEMENTS}, 'count(//b)')", F64, 2.0),
        (FN, f"xpath({ELEMENTS}, '//z')", STR, None),
    ],
    "xml_items": [(FN, f"listItem(xmlItems({ELEMENTS}, '//b'), 1)", STR, "<b>2<c>3</c></b>")],
    "base64_encode": [(FN, "base64Encode('aä')", STR, "YcOk")],
    "base64_decode": [(FN, "base64Decode(' Yc Ok')", STR, "aä")],
    "base64_encode_binary": [(FN, "base64EncodeBinary(base64DecodeBinary('AP8='))", STR, "AP8=")],
    "base64_decode_binary": [(FN, "base64DecodeBinary('AP8=')", BLOB, b"\x00\xff")],
    "url_encode": [(FN, "urlEncode('a b&ä/')", STR, "a%20b%26%C3%A4%2F")],
    "form_encode": [(SQL, "url_encode('a b&ä*~')", STR, "a+b%26%C3%A4*%7E")],
    "url_decode": [(FN, "urlDecode('a%20b+%C3%A4')", STR, "a b ä"), (SQL, "url_decode('a%2Bb')", STR, "a+b")],
    "md5": [(SQL, "md5('a')", STR, "0cc175b9c0f1b6a831c399e269772661")],
    "sha1": [(SQL, "sha1('a')", STR, "86f7e437faa5a7fce15d1ddcb9eaeaea377667b8")],
    "sha2": [(SQL, "left(sha2('a', 256), 8)", STR, "ca978112"), (SQL, "sha2('a', 7)", STR, None)],
    "crc32": [(SQL, "crc32('a')", I64, 3904355907)],
    "minute_of_day": [(FN, "timeMinuteOfDay(3661)", I32, 61), (FN, "timeMinuteOfDay(-60)", I32, 1439)],
    "second_of_day": [(FN, "timeSecondOfDay($t)", I32, 31225)],
    "time_string": [
        (FN, "timeGmtString(quotient($d, 1), '%Y-%m-%d %H:%M:%S')", STR, "2024-10-17 08:40:25"),
        (FN, "timeString($t, '%d.%m.')", STR, "17.10."),
        (ESP, "formatdate(d, '%Y')", STR, "2024"),
        (FN, "timeString(0)", STR, "1970-01-01 00:00:00"),
    ],
    "time_parse": [
        (FN, "timeParse('17.10.2024', '%d.%m.%Y')", I64, 1729123200),
        (FN, "timeParse('1970-01-02 00:00:01')", I64, 86401),
    ],
    "time_same": [(FN, "timeGmtToLocal($t)", I64, 1729154425)],
    "random": [],
    "guid": [],
    "convert_text": [
        (FN, "sum('1.5', $a)", F64, 8.5),
        (FN, "' 42 '", I32, 42),
        (FN, "''", I32, None),
        (FN, "equals($a, '7.0')", I32, 1),
    ],
}
"""The examples; `random` and `guid` depend on the position of the event and are in `test_random_values`."""

LOWERED: list[tuple[Dialect, str, FieldType, object]] = [
    (FN, "switch($a, 1, 'one', 7, 'seven', 'many')", STR, "seven"),
    (FN, "switch($a, 1, 'one')", STR, None),
    (FN, "interval($a, 5, 'low', 10, 'mid', 'high')", STR, "mid"),
    (FN, "interval($a, 5, 'low')", STR, None),
    (FN, "ifNext(gt($a, 9), 'a', gt($a, 6), 'b', 'c')", STR, "b"),
    (FN, "if(equals($a, 8), 1)", I32, None),
    (FN, "mean(1, 2, $a)", F64, 10 / 3),
    (FN, "precision($m, 1)", FieldType.MONEY, Decimal("12.3000")),
    (FN, "sum(1, 2, 3, )", I64, 6),
    (FN, "string($a, '-', $x, '-', true())", STR, "7-2.5-true"),
    (FN, "if(false(), 1, 'x')", STR, "x"),
    (FN, "number('5') / 2", F64, 2.5),
    (FN, "concatDelim('-', 'a', null, 'b')", STR, "a-b"),
    (FN, "timeYear(1729154425)", I32, 2024),
]
"""The calls that mean other functions."""
