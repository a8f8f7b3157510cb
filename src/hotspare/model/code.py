"""User code in a project: its text, its language, its limits, and the fields that it receives (SPEC A26, A36, A38)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum

from hotspare.base.errors import Place
from hotspare.model.types import Schema

STEPS_DEFAULT, STATE_BYTES_DEFAULT = 1_000_000, 1 << 20
"""The default limits of user code: steps for one event, and bytes of variables."""


class Language(Enum):
    LUA = "lua"
    PYTHON = "python"


LANGUAGES = {each.value: each for each in Language}


@dataclass(frozen=True, slots=True)
class Code:
    """The text of user code, without leading blank lines. `place` is the place of its first line."""

    text: str
    place: Place = field(default=Place(), compare=False)

    @classmethod
    def from_source_text(cls, text: str, place: Place) -> Code:
        """Returns the code of a text that begins at `place`, without leading blank lines and trailing blanks."""
        lines = text.replace("\r\n", "\n").replace("\r", "\n").rstrip().split("\n")
        blank = next((i for i, line in enumerate(lines) if line.strip()), 0)
        return cls("\n".join(lines[blank:]), replace(place, line=place.line + blank, column=0) if place.line else place)

    @property
    def digest(self) -> str:
        """The SHA-256 of the text, in hexadecimal; a project's hash includes it in place of the text."""
        return hashlib.sha256(self.text.encode(errors="replace")).hexdigest()


class ModuleUse(Enum):
    """How the code of windows uses a module."""

    MODULE = "module"
    """The module is loaded before the code of a window; each window has its own copy of the module's variables."""
    SNIPPET = "snippet"
    """Code calls the snippet's functions by name. In Python (`esp.call`) a snippet keeps no variables between calls. In Lua
    (`esp_call`) all code of the project shares the snippet's variables.
    """


@dataclass(frozen=True, slots=True)
class Module:
    """Code of a project that its windows use in addition to their own (SPEC A38)."""

    name: str
    language: Language
    code: Code
    use: ModuleUse = ModuleUse.MODULE
    init: str = ""
    """The function of a snippet in Lua that is called once, before any event; "" for none."""

    def meaning(self) -> dict[str, str]:
        """Returns the properties that determine outputs."""
        return {"language": self.language.value, "code": self.code.digest} | ({"init": self.init} if self.init else {})

    def __str__(self) -> str:
        return f"{self.use.value} {self.name}"


class Choice(Enum):
    """How fields of a schema are chosen."""

    ALL = "all"
    LISTED = "listed"
    OTHERS = "others"
    """All fields except the listed ones."""


@dataclass(frozen=True, slots=True)
class FieldChoice:
    """A choice of a schema's fields. Names are sorted and unique."""

    choice: Choice = Choice.ALL
    names: tuple[str, ...] = ()

    @classmethod
    def from_names(cls, choice: Choice, names: Sequence[str]) -> FieldChoice:
        """Returns a choice of `names`, which may be in any order and repeat; OTHERS without names becomes ALL."""
        listed = tuple(sorted(dict.fromkeys(names)))
        return cls() if choice is Choice.OTHERS and not listed else cls(choice, listed)

    def chosen_names(self, schema: Schema) -> tuple[str, ...]:
        """Returns the chosen fields, in the order of the schema."""
        if self.choice is Choice.ALL:
            return schema.names
        return tuple(name for name in schema.names if (name in self.names) is (self.choice is Choice.LISTED))

    def __str__(self) -> str:
        return "all" if self.choice is Choice.ALL else f"{self.choice.value} {','.join(self.names)}"


ALL_FIELDS = FieldChoice()


@dataclass(frozen=True, slots=True)
class CodeLimits:
    """The limits of user code; they are the same in every engine, so that all engines find a limit exceeded at the same event.

    steps_max        for one event: instructions of the Lua virtual machine, or turns of loops and calls in Python
    state_bytes_max  bytes of the variables, in their stored form
    """

    steps_max: int = STEPS_DEFAULT
    state_bytes_max: int = STATE_BYTES_DEFAULT

    def changed_limits(self) -> list[tuple[str, int]]:
        """Returns the limits that differ from the defaults, by name."""
        default = CodeLimits()
        return [(f.name, value) for f in fields(self) if (value := getattr(self, f.name)) != getattr(default, f.name)]


class Arguments(Enum):
    """The arguments of the function that is called for each event."""

    EVENT = "event"
    """Two arguments: the event, and a context."""
    FIELDS = "fields"
    """The fields of the event by name, and the context if the function has a parameter named `context`."""


@dataclass(frozen=True, slots=True)
class Script:
    """The function that a window calls for each event: `function` of `code`, with the fields `use` of the event, as `arguments`
    define.

    `modules`: names of the modules that are loaded before the code. `init`: a function that is called once, before any event; ""
    for none. `transient`: variables that are not kept from one event to the next.
    """

    language: Language
    code: Code
    function: str
    use: FieldChoice = ALL_FIELDS
    modules: tuple[str, ...] = ()
    init: str = ""
    transient: tuple[str, ...] = ()
    limits: CodeLimits = CodeLimits()
    arguments: Arguments = Arguments.EVENT

    def meaning(self) -> dict[str, str]:
        """Returns the properties that determine outputs, for the project's hash. The code is represented by its digest."""
        arguments = {} if self.arguments is Arguments.EVENT else {"arguments": self.arguments.value}
        return arguments | {
            "language": self.language.value,
            "code": self.code.digest,
            "function": self.function,
            "use": str(self.use),
            "modules": ",".join(self.modules),
            "init": self.init,
            "transient": ",".join(self.transient),
            "steps": str(self.limits.steps_max),
            "state bytes": str(self.limits.state_bytes_max),
        }
