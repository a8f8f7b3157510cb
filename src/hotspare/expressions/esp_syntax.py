"""Reads SAS expressions (compute, filter) and the function calls of functional windows into the untyped tree.

    or < and < not < = == != <> < <= > >= < & < + - < * / % < unary - + < literal, field, $field, call, parentheses

Words may be written in any case; fields may not. Strings are in single or double quotes, a doubled quote being one. `&` joins
strings. A number without point or exponent is an integer. `//` and `/* */` are comments. Statements are read by `statement_syntax`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from hotspare.expressions.function_table import CAST_NAMES, FUNCTION_NAMES
from hotspare.expressions.tree import DEPTH_MAX, Call, ExpressionRefused, FieldRef, Literal, Method, Tree, ValueType
from hotspare.model.project import Dialect

_TOKEN = re.compile(
    r"""(?P<blank>\s+|//[^\n]*|/\*(?s:.*?)\*/)
      | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<string>"(?:[^"]|"")*"|'(?:[^']|'')*')
      | (?P<property>\#[A-Za-z_][A-Za-z0-9_\-]*)
      | (?P<field>\$[A-Za-z_][A-Za-z0-9_]*)
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<sign><>|!=|==|<=|>=|:=|[-+*/%<>=&(),;.])""",
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
"""The functions of any number of arguments that are read as an operator between their arguments, by name."""
INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1


@dataclass(frozen=True, slots=True)
class Lexeme:
    kind: str
    text: str
    column: int


def parse_esp(text: str) -> Tree:
    """Returns the tree of one expression. Raises ExpressionRefused with the column of the first mistake."""
    return ExpressionParser(tokenize(text), len(text) + 1).read()


def parse_function(text: str, patterns: Mapping[str, str]) -> Tree:
    """Returns the tree of an expression in the language of functional windows. Raises ExpressionRefused with the column of the
    first mistake.

    `#name` is a property or, if `patterns` has the name, a regular expression. A comma may follow the last argument of a call.
    """
    return _FunctionParser(text, patterns).read()


def tokenize(text: str) -> list[Lexeme]:
    tokens, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            what = "the string is not closed" if text[at] in "\"'" else f"unexpected character {text[at]!r}"
            raise ExpressionRefused(at + 1, what, "check quotes and signs at this place")
        if match.lastgroup != "blank":
            tokens.append(Lexeme(str(match.lastgroup), match.group(), at + 1))
        at = match.end()
    return tokens


def number_literal(text: str, column: int) -> Literal:
    """Returns a number of either dialect: an integer as the narrowest of int32 and int64, anything else as a double."""
    if not text.isdigit():
        try:
            return Literal(float(text), ValueType.DOUBLE, column)
        except ValueError:
            raise ExpressionRefused(column, f"{text} is not a number", "write it as 12, 1.5 or 1e6") from None
    value = int(text)
    if value > INT64_MAX:
        raise ExpressionRefused(column, f"{text} does not fit int64", "write it with a point to make it a double")
    return Literal(value, ValueType.INT32 if value <= INT32_MAX else ValueType.INT64, column)


class ExpressionParser:
    """A parser of expressions over a list of tokens. The statement parser inherits from it and reads one expression after
    another.
    """

    may_end = False
    """Whether a comma may follow the last argument of a call."""

    def __init__(self, tokens: list[Lexeme], end_column: int) -> None:
        self._tokens = tokens
        self._at = 0
        self._end = Lexeme("end", "", end_column)
        self._depth = 0

    def read(self) -> Tree:
        """Returns the tree of the one expression that all tokens form. Raises ExpressionRefused if tokens follow the expression."""
        tree = self.expression()
        rest = self.peek()
        if rest.kind != "end":
            raise ExpressionRefused(rest.column, f"unexpected {rest.text}", "remove it, or put an operator before it")
        return tree

    def peek(self, ahead: int = 0) -> Lexeme:
        place = self._at + ahead
        return self._tokens[place] if place < len(self._tokens) else self._end

    def next_token(self) -> Lexeme:
        token = self.peek()
        self._at += 1
        return token

    def expect(self, sign: str) -> None:
        token = self.next_token()
        if token.text != sign or token.kind != "sign":
            raise ExpressionRefused(token.column, f"{sign} is missing" + (f" before {token.text}" if token.text else ""), "add it")

    def is_word(self, word: str) -> bool:
        token = self.peek()
        return token.kind == "word" and token.text.lower() == word

    def expression(self) -> Tree:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ExpressionRefused(
                self.peek().column, f"nested more than {DEPTH_MAX} deep", "split the expression over several windows"
            )
        parts = [self._and()]
        while self.is_word("or"):
            self.next_token()
            parts.append(self._and())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else Call("or", "or", tuple(parts), 1)

    def _and(self) -> Tree:
        parts = [self._not()]
        while self.is_word("and"):
            self.next_token()
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else Call("and", "and", tuple(parts), 1)

    def _not(self) -> Tree:
        first, count = self.peek(), 0
        while self.is_word("not"):
            self.next_token()
            count += 1
        tree = self._comparison()
        return Call("not", "not", (tree,), first.column) if count % 2 else tree

    def _comparison(self) -> Tree:
        left = self._joined()
        token = self.peek()
        if token.kind == "sign" and token.text in _COMPARISON:
            self.next_token()
            left = Call(_COMPARISON[token.text], token.text, (left, self._joined()), token.column)
        return left

    def _joined(self) -> Tree:
        first = self._sum()
        parts, column = [first], self.peek().column
        while self.peek().kind == "sign" and self.peek().text == "&":
            self.next_token()
            parts.append(self._sum())
        return first if len(parts) == 1 else Call("concat", "&", tuple(map(_as_text, parts)), column)

    def _sum(self) -> Tree:
        tree, length = self._product(), 0
        while self.peek().kind == "sign" and self.peek().text in _SUM:
            token = self.next_token()
            length = self._longer(length, token)
            tree = Call(_SUM[token.text], token.text, (tree, self._product()), token.column)
        return tree

    def _product(self) -> Tree:
        tree, length = self._signed(), 0
        while self.peek().kind == "sign" and self.peek().text in _PRODUCT:
            token = self.next_token()
            length = self._longer(length, token)
            tree = Call(_PRODUCT[token.text], token.text, (tree, self._signed()), token.column)
        return tree

    def _longer(self, length: int, token: Lexeme) -> int:
        if length >= DEPTH_MAX:
            raise ExpressionRefused(token.column, f"more than {DEPTH_MAX} operators in a row", "use parentheses or two windows")
        return length + 1

    def _signed(self) -> Tree:
        signs = []
        while self.peek().kind == "sign" and self.peek().text in "+-":
            signs.append(self.next_token())
        negative = sum(t.text == "-" for t in signs) % 2 == 1
        token = self.peek()
        if negative and token.kind == "number" and token.text == str(INT64_MAX + 1):
            self.next_token()
            return Literal(-INT64_MAX - 1, ValueType.INT64, token.column)
        tree = self._primary()
        if not negative:
            return tree
        if isinstance(tree, Literal) and isinstance(tree.value, int | float):
            return Literal(-tree.value, tree.type, signs[0].column)
        return Call("negate", "-", (tree,), signs[0].column)

    def _primary(self) -> Tree:
        token = self.next_token()
        if token.kind == "number":
            return number_literal(token.text, token.column)
        if token.kind == "string":
            quote = token.text[0]
            return Literal(token.text[1:-1].replace(quote * 2, quote), ValueType.STRING, token.column)
        if token.kind == "field":
            return FieldRef(token.text[1:], token.column)
        if token.kind == "property":
            return self.property_tree(token)
        if token.kind == "sign" and token.text == "(":
            tree = self.expression()
            self.expect(")")
            return tree
        if token.kind == "word":
            return self._word(token)
        raise ExpressionRefused(
            token.column,
            "the expression ends too early" if token.kind == "end" else f"unexpected {token.text}",
            "an operand or a closing parenthesis is missing",
        )

    def _word(self, token: Lexeme) -> Tree:
        if self.is_sign("("):
            return self.call_tree(token.text, self.arguments(), token.column)
        if self.is_sign(".") and self.peek(1).kind == "word" and self.is_sign("(", 2):
            self.next_token()
            return Method(token.text, self.next_token().text.lower(), self.arguments(), token.column)
        name = token.text.lower()
        if name in _CONSTANT:
            value, type_ = _CONSTANT[name]
            return Literal(value, type_, token.column)
        if name in ("and", "or", "not"):
            raise ExpressionRefused(token.column, f"unexpected {token.text}", "remove it, or put an operand before it")
        return FieldRef(token.text, token.column)

    def property_tree(self, token: Lexeme) -> Tree:
        raise ExpressionRefused(token.column, f"unexpected {token.text}", "only functional windows have properties")

    def call_tree(self, written: str, arguments: tuple[Tree, ...], column: int) -> Tree:
        return esp_call(written, arguments, column)

    def is_sign(self, sign: str, ahead: int = 0) -> bool:
        token = self.peek(ahead)
        return token.kind == "sign" and token.text == sign

    def arguments(self) -> tuple[Tree, ...]:
        """Reads "(", arguments separated by commas, and ")"; returns the arguments."""
        self.expect("(")
        arguments: list[Tree] = []
        if not self.is_sign(")"):
            arguments.append(self.expression())
            while self.is_sign(","):
                self.next_token()
                if self.may_end and self.is_sign(")"):
                    break
                arguments.append(self.expression())
        self.expect(")")
        return tuple(arguments)


def _as_text(tree: Tree) -> Tree:
    """Returns `tree`, an operand of `&`, with a conversion to text."""
    if isinstance(tree, Literal) and tree.type is ValueType.STRING:
        return tree
    return Call("cast_stored", "&", (tree, Literal("string", ValueType.STRING)), tree.column)


def check_one_argument(written: str, count: int, column: int) -> None:
    """Raises ExpressionRefused if `count`, the number of arguments of the conversion `written`, is not one."""
    if count != 1:
        raise ExpressionRefused(column, f"{written} takes one argument, {count} are given", f"write {written}(x)")


class _FunctionParser(ExpressionParser):
    may_end = True

    def __init__(self, text: str, patterns: Mapping[str, str]) -> None:
        super().__init__(tokenize(text), len(text) + 1)
        self._patterns = patterns

    def property_tree(self, token: Lexeme) -> Tree:
        name = token.text[1:]
        if name in self._patterns:
            return Literal(self._patterns[name], ValueType.STRING, token.column)
        return FieldRef(token.text, token.column)

    def call_tree(self, written: str, arguments: tuple[Tree, ...], column: int) -> Tree:
        return function_call(written, arguments, column)


def esp_call(written: str, arguments: tuple[Tree, ...], column: int) -> Tree:
    """Returns the tree of a call of the function `written`. An unknown name gives a call without function, which the checker
    refuses.
    """
    name = written.lower()
    if name in _TEXT_SECOND and len(arguments) > 1 and isinstance(arguments[0], Literal) and not isinstance(arguments[1], Literal):
        arguments = (arguments[1], arguments[0], *arguments[2:])
    if name in CAST_NAMES[Dialect.ESP]:
        check_one_argument(written, len(arguments), column)
        return Call("cast_stored", written, (*arguments, Literal(CAST_NAMES[Dialect.ESP][name], ValueType.STRING)), column)
    if name in _FOLDED and arguments:
        return _folded(_FOLDED[name], written, arguments, column)
    if name in ("diff", "increment", "decrement") and len(arguments) == (2 if name == "diff" else 1):
        one = arguments[1] if name == "diff" else Literal(1, ValueType.INT32, column)
        return Call("add" if name == "increment" else "subtract", written, (arguments[0], one), column)
    if name in _LOWERED:
        return _LOWERED[name](written, arguments, column)
    return Call(FUNCTION_NAMES[Dialect.ESP].get(name, ""), written, arguments, column)


def function_call(written: str, arguments: tuple[Tree, ...], column: int) -> Tree:
    """Returns the tree of a call in the function language. There a pattern precedes its text, and string(...) joins all its
    arguments.
    """
    name = written.lower()
    if name in _TEXT_SECOND and len(arguments) > 1 and isinstance(arguments[0], Literal):
        arguments = (arguments[1], arguments[0], *arguments[2:])
    if name in ("string", "tostring") and len(arguments) != 1:
        return Call("concat", written, arguments, column)
    if name == "number" and len(arguments) == 1:
        return Call("cast_stored", written, (*arguments, Literal("double", ValueType.STRING)), column)
    return esp_call(written, arguments, column)


_TEXT_SECOND = ("rgx", "rgxmatch", "rgxreplace", "rgxreplaceall", "rgxtoken", "rgxlasttoken", "rgxv", "rgxmatches")
"""The functions of a pattern and a text in either order: the argument that is a literal is the pattern."""


def _folded(function: str, written: str, arguments: tuple[Tree, ...], column: int) -> Tree:
    """Returns the arguments joined from left to right by the operator `function`: `sum(a, b, c)` is `(a + b) + c`."""
    _check_count(written, arguments, column)
    tree = arguments[0]
    for argument in arguments[1:]:
        tree = Call(function, written, (tree, argument), column)
    return tree


def _check_count(written: str, arguments: tuple[Tree, ...], column: int) -> None:
    if len(arguments) > DEPTH_MAX:
        raise ExpressionRefused(column, f"{written} takes up to {DEPTH_MAX} arguments", "nest several calls")


def _wanted(written: str, column: int, form: str) -> ExpressionRefused:
    return ExpressionRefused(column, f"{written} does not take these arguments", f"write {form}")


def _switch(written: str, arguments: tuple[Tree, ...], column: int) -> Tree:
    """Returns a case for `switch(x, value, result, ..., otherwise)`: the result after the first value that equals `x`, else
    `otherwise`.
    """
    return _by_subject(written, arguments, column, "equal", "switch(x, value, result, ..., otherwise)")


def _interval(written: str, arguments: tuple[Tree, ...], column: int) -> Tree:
    """Returns a case for `interval(x, bound, result, ..., otherwise)`: the result after the first bound that is greater than `x`,
    else `otherwise`.
    """
    return _by_subject(written, arguments, column, "less", "interval(x, bound, result, ..., otherwise)")


def _by_subject(written: str, arguments: tuple[Tree, ...], column: int, function: str, form: str) -> Tree:
    if len(arguments) < 3:
        raise _wanted(written, column, form)
    _check_count(written, arguments, column)
    subject, rest = arguments[0], arguments[1:]
    cases: list[Tree] = []
    for value, result in zip(rest[0::2], rest[1::2], strict=False):
        cases += [Call(function, written, (subject, value), column), result]
    cases.append(rest[-1] if len(rest) % 2 else Literal(None, ValueType.NULL, column))
    return Call("case", written, tuple(cases), column)


def _if(written: str, arguments: tuple[Tree, ...], column: int) -> Tree:
    """Returns a case for `if(condition, value, ..., otherwise)`; `otherwise` is null if the call omits it."""
    more = (Literal(None, ValueType.NULL, column),) if len(arguments) and len(arguments) % 2 == 0 else ()
    return Call("case", written, (*arguments, *more), column)


def _mean(written: str, arguments: tuple[Tree, ...], column: int) -> Tree:
    if not arguments:
        raise _wanted(written, column, "mean(x, ...)")
    count = Literal(len(arguments), ValueType.INT32, column)
    return Call("divide", written, (_folded("add", written, arguments, column), count), column)


def _constant(literal: Literal) -> Callable[[str, tuple[Tree, ...], int], Tree]:
    def call(written: str, arguments: tuple[Tree, ...], column: int) -> Tree:
        if arguments:
            raise _wanted(written, column, f"{written}()")
        return replace(literal, column=column)

    return call


_LOWERED: Mapping[str, Callable[[str, tuple[Tree, ...], int], Tree]] = {
    "switch": _switch,
    "interval": _interval,
    "if": _if,
    "ifnext": _if,
    "mean": _mean,
    "precision": lambda written, arguments, column: Call("round", written, arguments, column),
    "true": _constant(Literal(value=True, type=ValueType.BOOLEAN)),
    "false": _constant(Literal(value=False, type=ValueType.BOOLEAN)),
}
"""The functions that are replaced by another tree, each with the builder of that tree."""
