"""Reads SAS code, statements around the expressions of `esp_syntax`, into the untyped tree (SPEC A24).

    integer n  string s, t  regex r            variables; `private`, `hidden`, `public` before them change nothing
    integer array a                            several values: `a.dim(n)`, `a.set(i, x)`, `a.get(i)`, `a.dim()`
    n = n + 1                                  `n` has to be a variable, else it is a comparison
    if c then STATEMENT else STATEMENT         also `if c begin ... end`
    while c STATEMENT    for i = 1 to 10 step 2 STATEMENT
    begin ... end        return x

Statements follow one another, with or without a semicolon. A text that is one expression is that expression. An expression as the
last statement is the value that the block returns.
"""

from __future__ import annotations

from collections.abc import Collection

from hotspare.expressions.array_variables import ARRAY_OF
from hotspare.expressions.esp_syntax import ExpressionParser, parse_esp, tokenize
from hotspare.expressions.tree import (
    Assign,
    CallStatement,
    CountingLoop,
    Declare,
    ExpressionRefused,
    IfStatement,
    Literal,
    Loop,
    Method,
    Return,
    Statement,
    Statements,
    Tree,
)

VARIABLE_TYPES = {
    "integer": "int64",
    "int": "int64",
    "long": "int64",
    "int32": "int32",
    "int64": "int64",
    "real": "double",
    "double": "double",
    "number": "double",
    "string": "string",
    "boolean": "boolean",
    "bool": "boolean",
    "date": "stamp",
    "stamp": "stamp",
    "money": "money",
    "regex": "regex",
}
"""The types of variables as written in code, mapped to a type; a `regex` holds a regular expression."""
STATEMENT_DEPTH_MAX = 20
"""The maximum depth of statements within statements."""
_UNSUPPORTED_TYPES = {
    "dq": "they call software of the vendor for the quality of data",
}
_BEFORE_TYPES = ("private", "hidden", "visible", "public", "static", "global")
_ENDS = ("end", "else")


def parse_code(text: str, variables: Collection[str] = ()) -> Tree | Statements:
    """Returns the tree of one expression, or statements. `variables`: the names of the window's variables. Raises ExpressionRefused
    with the column of the first mistake.
    """
    tokens = tokenize(text)
    assigns = len(tokens) > 1 and tokens[0].text in variables and tokens[1].text in ("=", ":=")
    returns = bool(tokens) and tokens[0].kind == "word" and tokens[0].text.lower() == "return"
    try:
        if not (assigns or returns):
            return parse_esp(text)
    except ExpressionRefused as refused:
        try:
            return _StatementParser(text, variables).code()
        except ExpressionRefused as of_statements:
            raise (of_statements if of_statements.column >= refused.column else refused) from None
    return _StatementParser(text, variables).code()


class _StatementParser(ExpressionParser):
    def __init__(self, text: str, variables: Collection[str]) -> None:
        super().__init__(tokenize(text), len(text) + 1)
        self._variables = set(variables)
        self._levels = 0

    def code(self) -> Statements:
        statements = self._until_end()
        rest = self.peek()
        if rest.kind != "end":
            raise ExpressionRefused(rest.column, f"unexpected {rest.text}", "remove it, or put an operator before it")
        return Statements(statements, 1)

    def _until_end(self) -> tuple[Statement, ...]:
        """Returns the statements up to the end of the code. Stops earlier before a word, such as `end` or `else`, that belongs to
        the enclosing statement.
        """
        statements: list[Statement] = []
        while self._skip() and not any(map(self.is_word, _ENDS)):
            statements += self._statement()
        return tuple(statements)

    def _skip(self) -> bool:
        """Skips semicolons. Returns whether a token follows."""
        while self.is_sign(";"):
            self.next_token()
        return self.peek().kind != "end"

    def _statement(self) -> list[Statement]:
        self._levels += 1
        if self._levels > STATEMENT_DEPTH_MAX:
            raise ExpressionRefused(
                self.peek().column, f"nested more than {STATEMENT_DEPTH_MAX} deep", "split the code over several windows"
            )
        found = self._one()
        self._levels -= 1
        return found

    def _one(self) -> list[Statement]:
        token = self.peek()
        word = token.text.lower() if token.kind == "word" else ""
        if word == "begin":
            return list(self._block())
        if word == "if" and self._is_statement():
            return [self._choose()]
        if word == "while":
            self.next_token()
            return [Loop(self.expression(), self._body(), token.column)]
        if word == "for":
            return [self._count()]
        if word == "return":
            self.next_token()
            ends = not self._more_follows()
            return [Return(None if ends else self.expression(), token.column)]
        if word in _UNSUPPORTED_TYPES and self.peek(1).kind == "word":
            message = f"variables of type {token.text} cannot be supported: {_UNSUPPORTED_TYPES[word]}"
            raise ExpressionRefused(self.peek(1).column, message, "compute it before, or write it as a Python or Lua window")
        if word in _BEFORE_TYPES or (word in VARIABLE_TYPES and self.peek(1).kind == "word"):
            return self._declare()
        if token.kind == "word" and token.text in self._variables and (self.is_sign("=", 1) or self.is_sign(":=", 1)):
            self.next_token()
            self.next_token()
            return [Assign(token.text, self.expression(), token.column)]
        tree = self.expression()
        if isinstance(tree, Method):
            return [CallStatement(tree, token.column)]
        rest = self.peek()
        if self._more_follows() and not any(map(self.is_word, _ENDS)):
            raise ExpressionRefused(rest.column, f"unexpected {rest.text}", "remove it, or put an operator before it")
        return [Return(tree, token.column)]

    def _more_follows(self) -> bool:
        ahead = 0
        while self.is_sign(";", ahead):
            ahead += 1
        return self.peek(ahead).kind != "end"

    def _block(self) -> tuple[Statement, ...]:
        self.next_token()
        statements = self._until_end()
        if not self.is_word("end"):
            raise ExpressionRefused(self.peek().column, "end is missing", "write end after the last statement")
        self.next_token()
        return statements

    def _body(self) -> tuple[Statement, ...]:
        if not self._skip() or any(map(self.is_word, _ENDS)):
            raise ExpressionRefused(self.peek().column, "a statement is missing", "write one, or begin ... end")
        return tuple(self._statement())

    def _choose(self) -> Statement:
        token = self.next_token()
        condition = self.expression()
        if self.is_word("then"):
            self.next_token()
        then = self._body()
        ahead = 0
        while self.is_sign(";", ahead):
            ahead += 1
        if not (self.peek(ahead).kind == "word" and self.peek(ahead).text.lower() == "else"):
            return IfStatement(condition, then, (), token.column)
        self._skip()
        self.next_token()
        return IfStatement(condition, then, self._body(), token.column)

    def _is_statement(self) -> bool:
        """Whether the word `if` here begins a statement. The function `if` differs by a comma directly inside its parentheses."""
        if not self.is_sign("(", 1):
            return True
        depth, ahead = 0, 1
        while (token := self.peek(ahead)).kind != "end":
            if token.kind == "sign" and token.text in "()":
                depth += 1 if token.text == "(" else -1
            elif depth == 1 and token.kind == "sign" and token.text == ",":
                return False
            ahead += 1
            if depth == 0:
                break
        return True

    def _count(self) -> Statement:
        token = self.next_token()
        name = self._name()
        self._variables.add(name)
        self.expect("=")
        first = self.expression()
        if not self.is_word("to"):
            raise ExpressionRefused(self.peek().column, "to is missing", "write for i = 1 to 10")
        self.next_token()
        last, step = self.expression(), 1
        if self.is_word("step"):
            self.next_token()
            column = self.peek().column
            written = self.expression()
            if not (isinstance(written, Literal) and isinstance(written.value, int) and written.value):
                raise ExpressionRefused(
                    column, "the step is not a whole number other than 0", "write it as a number, such as 2 or -1"
                )
            step = int(written.value)
        return CountingLoop(name, first, last, step, self._body(), token.column)

    def _declare(self) -> list[Statement]:
        first = self.peek().column
        while self.peek().kind == "word" and self.peek().text.lower() in _BEFORE_TYPES:
            self.next_token()
        token = self.next_token()
        if token.kind != "word" or token.text.lower() not in VARIABLE_TYPES:
            known = ", ".join(VARIABLE_TYPES)
            raise ExpressionRefused(token.column, f"{token.text or 'nothing'} is not a type of a variable", f"use one of: {known}")
        type_ = VARIABLE_TYPES[token.text.lower()]
        if self.is_word("array") and self.peek(1).kind == "word":
            if type_ not in ARRAY_OF:
                raise ExpressionRefused(
                    self.peek().column, f"there are no arrays of {token.text}", "use one of integer, real and string"
                )
            self.next_token()
            type_ = ARRAY_OF[type_]
        found: list[Statement] = []
        while True:
            column = self.peek().column
            name = self._name()
            self._variables.add(name)
            found.append(Declare((name,), type_, first))
            if self.is_sign("="):
                self.next_token()
                found.append(Assign(name, self.expression(), column))
            if not self.is_sign(","):
                return found
            self.next_token()

    def _name(self) -> str:
        token = self.next_token()
        if token.kind != "word":
            raise ExpressionRefused(token.column, "the name of a variable is missing", "write one, such as n")
        return token.text
