"""Reader of SAS expressions (compute, filter) and of the function calls of functional windows, into the untyped tree.

    or < and < not < = == != <> < <= > >= < & < + - < * / % < unary - + < literal, field, $field, call, parentheses

Words may be written in any case; fields may not. Strings stand in single or double quotes, a doubled quote being one. `&` joins
strings. A number without point or exponent is an integer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hotspare.engine.expressions.functions import CAST_NAMES, NAMES
from hotspare.engine.expressions.tree import DEPTH_MAX, Call, ExpressionRefused, FieldRef, Literal, Tree, ValueType
from hotspare.model.project import Dialect

_TOKEN = re.compile(
    r"""(?P<blank>\s+)
      | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<string>"(?:[^"]|"")*"|'(?:[^']|'')*')
      | (?P<field>\$[A-Za-z_][A-Za-z0-9_]*)
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<sign><>|!=|==|<=|>=|[-+*/%<>=&(),])""",
    re.VERBOSE,
)
_COMPARISON = {
    "=": "equal",
    "==": "equal",
    "!=": "not_equal",
    "<>": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
_SUM = {"+": "add", "-": "subtract"}
_PRODUCT = {"*": "multiply", "/": "divide", "%": "mod"}
_CONSTANT = {"true": (True, ValueType.BOOLEAN), "false": (False, ValueType.BOOLEAN), "null": (None, ValueType.NULL)}
_FOLDED = {"sum": "add", "product": "multiply"}
"""Calls of any number of arguments that mean an operator between them."""
INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    column: int


def parse_esp(text: str) -> Tree:
    """ExpressionRefused with the column of the first mistake."""
    return _Reader(_tokens(text), len(text) + 1).read()


def _tokens(text: str) -> list[_Token]:
    tokens, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            what = "the string is not closed" if text[at] in "\"'" else f"unexpected character {text[at]!r}"
            raise ExpressionRefused(at + 1, what, "check quotes and signs at this place")
        if match.lastgroup != "blank":
            tokens.append(_Token(str(match.lastgroup), match.group(), at + 1))
        at = match.end()
    return tokens


def number_literal(text: str, column: int) -> Literal:
    """Shared by both dialects: integers are the narrowest of int32 and int64, anything else a double."""
    if not text.isdigit():
        try:
            return Literal(float(text), ValueType.DOUBLE, column)
        except ValueError:
            raise ExpressionRefused(column, f"{text} is no number", "write it as 12, 1.5 or 1e6") from None
    value = int(text)
    if value > INT64_MAX:
        raise ExpressionRefused(column, f"{text} does not fit int64", "write it with a point to make it a double")
    return Literal(value, ValueType.INT32 if value <= INT32_MAX else ValueType.INT64, column)


class _Reader:
    def __init__(self, tokens: list[_Token], end_column: int) -> None:
        self._tokens = tokens
        self._at = 0
        self._end = _Token("end", "", end_column)
        self._depth = 0

    def read(self) -> Tree:
        tree = self._or()
        rest = self._peek()
        if rest.kind != "end":
            raise ExpressionRefused(rest.column, f"unexpected {rest.text}", "remove it, or put an operator before it")
        return tree

    def _peek(self, ahead: int = 0) -> _Token:
        place = self._at + ahead
        return self._tokens[place] if place < len(self._tokens) else self._end

    def _take(self) -> _Token:
        token = self._peek()
        self._at += 1
        return token

    def _expect(self, sign: str) -> None:
        token = self._take()
        if token.text != sign or token.kind != "sign":
            raise ExpressionRefused(token.column, f"{sign} is missing" + (f" before {token.text}" if token.text else ""), "add it")

    def _is_word(self, word: str) -> bool:
        token = self._peek()
        return token.kind == "word" and token.text.lower() == word

    def _or(self) -> Tree:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ExpressionRefused(
                self._peek().column, f"nested more than {DEPTH_MAX} deep", "split the expression over several windows"
            )
        parts = [self._and()]
        while self._is_word("or"):
            self._take()
            parts.append(self._and())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else Call("or", "or", tuple(parts), 1)

    def _and(self) -> Tree:
        parts = [self._not()]
        while self._is_word("and"):
            self._take()
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else Call("and", "and", tuple(parts), 1)

    def _not(self) -> Tree:
        first, count = self._peek(), 0
        while self._is_word("not"):
            self._take()
            count += 1
        tree = self._comparison()
        return Call("not", "not", (tree,), first.column) if count % 2 else tree

    def _comparison(self) -> Tree:
        left = self._joined()
        token = self._peek()
        if token.kind == "sign" and token.text in _COMPARISON:
            self._take()
            left = Call(_COMPARISON[token.text], token.text, (left, self._joined()), token.column)
        return left

    def _joined(self) -> Tree:
        first = self._sum()
        parts, column = [first], self._peek().column
        while self._peek().kind == "sign" and self._peek().text == "&":
            self._take()
            parts.append(self._sum())
        return first if len(parts) == 1 else Call("concat", "&", tuple(parts), column)

    def _sum(self) -> Tree:
        tree, length = self._product(), 0
        while self._peek().kind == "sign" and self._peek().text in _SUM:
            token = self._take()
            length = self._longer(length, token)
            tree = Call(_SUM[token.text], token.text, (tree, self._product()), token.column)
        return tree

    def _product(self) -> Tree:
        tree, length = self._signed(), 0
        while self._peek().kind == "sign" and self._peek().text in _PRODUCT:
            token = self._take()
            length = self._longer(length, token)
            tree = Call(_PRODUCT[token.text], token.text, (tree, self._signed()), token.column)
        return tree

    def _longer(self, length: int, token: _Token) -> int:
        if length >= DEPTH_MAX:
            raise ExpressionRefused(token.column, f"more than {DEPTH_MAX} operators in a row", "use parentheses or two windows")
        return length + 1

    def _signed(self) -> Tree:
        signs = []
        while self._peek().kind == "sign" and self._peek().text in "+-":
            signs.append(self._take())
        negative = sum(t.text == "-" for t in signs) % 2 == 1
        token = self._peek()
        if negative and token.kind == "number" and token.text == str(INT64_MAX + 1):
            self._take()
            return Literal(-INT64_MAX - 1, ValueType.INT64, token.column)
        tree = self._primary()
        if not negative:
            return tree
        if isinstance(tree, Literal) and isinstance(tree.value, int | float):
            return Literal(-tree.value, tree.type, signs[0].column)
        return Call("negate", "-", (tree,), signs[0].column)

    def _primary(self) -> Tree:
        token = self._take()
        if token.kind == "number":
            return number_literal(token.text, token.column)
        if token.kind == "string":
            quote = token.text[0]
            return Literal(token.text[1:-1].replace(quote * 2, quote), ValueType.STRING, token.column)
        if token.kind == "field":
            return FieldRef(token.text[1:], token.column)
        if token.kind == "sign" and token.text == "(":
            tree = self._or()
            self._expect(")")
            return tree
        if token.kind == "word":
            return self._word(token)
        raise ExpressionRefused(
            token.column,
            "the expression ends too early" if token.kind == "end" else f"unexpected {token.text}",
            "an operand or a closing parenthesis is missing",
        )

    def _word(self, token: _Token) -> Tree:
        if self._peek().kind == "sign" and self._peek().text == "(":
            return self._call(token)
        name = token.text.lower()
        if name in _CONSTANT:
            value, type_ = _CONSTANT[name]
            return Literal(value, type_, token.column)
        if name in ("and", "or", "not"):
            raise ExpressionRefused(token.column, f"unexpected {token.text}", "remove it, or put an operand before it")
        return FieldRef(token.text, token.column)

    def _call(self, token: _Token) -> Tree:
        self._expect("(")
        arguments: list[Tree] = []
        if self._peek().text != ")" or self._peek().kind != "sign":
            arguments.append(self._or())
            while self._peek().text == "," and self._peek().kind == "sign":
                self._take()
                arguments.append(self._or())
        self._expect(")")
        return esp_call(token.text, tuple(arguments), token.column)


def check_one_argument(written: str, count: int, column: int) -> None:
    """Refuse a conversion that is called with another number of arguments."""
    if count != 1:
        raise ExpressionRefused(column, f"{written} takes one argument, {count} are given", f"write {written}(x)")


def esp_call(written: str, arguments: tuple[Tree, ...], column: int) -> Tree:
    """The tree that a call by this name means; unknown names are left for the checker."""
    name = written.lower()
    if name in CAST_NAMES[Dialect.ESP]:
        check_one_argument(written, len(arguments), column)
        return Call("cast_stored", written, (*arguments, Literal(CAST_NAMES[Dialect.ESP][name], ValueType.STRING)), column)
    if name in _FOLDED and arguments:
        if len(arguments) > DEPTH_MAX:
            raise ExpressionRefused(column, f"{written} takes up to {DEPTH_MAX} arguments", "nest several calls")
        tree = arguments[0]
        for argument in arguments[1:]:
            tree = Call(_FOLDED[name], written, (tree, argument), column)
        return tree
    if name in ("diff", "increment", "decrement") and len(arguments) == (2 if name == "diff" else 1):
        one = arguments[1] if name == "diff" else Literal(1, ValueType.INT32, column)
        return Call("add" if name == "increment" else "subtract", written, (arguments[0], one), column)
    return Call(NAMES[Dialect.ESP].get(name, ""), written, arguments, column)
