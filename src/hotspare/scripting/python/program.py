"""User code in Python as a program: a text, checked and rewritten once, and instances of it with variables.

text ─► syntax tree ─► check ─► rewritten with guards ─► code object ─► instances, each with variables of its own
"""

from __future__ import annotations

import ast
import importlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType, MappingProxyType
from typing import Any

from hotspare.base.errors import CodeOutOfMemory
from hotspare.model.names import nearest_names_hint
from hotspare.scripting.contract import CallingConvention
from hotspare.scripting.python.builtin_names import builtin_names, ignore_output
from hotspare.scripting.python.checking import SourceError, check_column_syntax, check_syntax
from hotspare.scripting.python.column_guards import CHANGES_VARIABLES
from hotspare.scripting.python.guards import Guards
from hotspare.scripting.python.keeper import Keeper
from hotspare.scripting.python.kept import NotPlain
from hotspare.scripting.python.kept_bytes import decode, encode
from hotspare.scripting.python.meter import LimitExceeded, MemoryExhausted, Meter, PythonLimits
from hotspare.scripting.python.modules import IMPORTABLE, import_refusal, namespace
from hotspare.scripting.python.namespaces import PROGRAM_MODULE, Namespace
from hotspare.scripting.python.plain_values import plain_value
from hotspare.scripting.python.rewriting import EACH, TICK, rewrite_python
from hotspare.scripting.python.safe_texts import without_addresses
from hotspare.scripting.python.stack import at_fixed_level
from hotspare.scripting.python.variables import ModuleVariables, Unkeepable
from hotspare.scripting.python.virtual_clock import VirtualClock

ESP, ESP_MEMBERS = "esp", ("call", "logMessage")
"""The module of the engine's functions for code, and its members, named as in SAS ESP."""
warnings.filterwarnings("ignore", module=f"^{PROGRAM_MODULE}$")  # turning warnings into errors is a setting of the process
_DRAWING = ("random.", "uuid.uuid4")
LOADING_FACTOR = 100
"""The limit of steps for loading a program, as a multiple of the limit for an event."""
ERROR_LENGTH_MAX = 300


class Unloadable(Exception):
    """Raised if a program cannot be used. `mistakes`: all errors, by line. `name`: the text that has them."""

    def __init__(self, mistakes: Sequence[SourceError], name: str) -> None:
        super().__init__("; ".join(each.message for each in mistakes))
        self.mistakes = tuple(mistakes)
        self.name = name


class CallFailure(Exception):
    """Raised if a call failed; its changes are undone. `line` counts from 1 in the text; 0 is unknown."""

    def __init__(self, text: str, line: int = 0) -> None:
        super().__init__(text)
        self.text = text
        self.line = line


class CallTooLarge(CallFailure):
    """Raised if a call exceeds a limit, or would keep a value that cannot be saved."""


@dataclass(frozen=True, slots=True)
class PythonText:
    """A compiled text. `rebound`: module variables that functions declare `global`. `nonlocals`: variables that functions declare
    `nonlocal`. `functions`: the functions at its top level.
    """

    name: str
    code: CodeType
    rebound: frozenset[str]
    nonlocals: frozenset[str]
    functions: frozenset[str]
    imports: frozenset[str]
    """The project's own modules that the text imports."""
    lines: Mapping[str, int]
    """For each name that the text binds, the line of its first binding; mistakes in module variables are reported there."""
    calling_convention: CallingConvention

    @classmethod
    def from_source(
        cls, text: str, name: str, modules: Sequence[str] = (), calls: CallingConvention = CallingConvention.WITH_EVENTS
    ) -> PythonText:
        """Returns the checked, rewritten and compiled text. `modules`: the project's modules, which the text may import. `calls`:
        the calling convention of its functions. Raises Unloadable with all errors.
        """
        syntax = _parsed(text, name)

        def may_import(module: str, member: str) -> str | None:
            if module in modules or (module == ESP and member in ("", *ESP_MEMBERS)):
                return None
            if calls is CallingConvention.WITH_COLUMNS and f"{module}.{member}".startswith(_DRAWING):
                return "each row would draw the same number: use a window of the type python"
            return nearest_names_hint(member, ESP_MEMBERS) if module == ESP else import_refusal(module, member)

        mistakes = [
            *check_syntax(syntax, may_import),
            *(check_column_syntax(syntax) if calls is CallingConvention.WITH_COLUMNS else ()),
        ]
        if mistakes:
            raise Unloadable(mistakes, name)
        walked = list(ast.walk(syntax))
        rebound = frozenset(each for node in walked if isinstance(node, ast.Global) for each in node.names)
        nonlocals = frozenset(each for node in walked if isinstance(node, ast.Nonlocal) for each in node.names)
        functions = frozenset(node.name for node in syntax.body if isinstance(node, ast.FunctionDef))
        imported = {alias.name for node in walked if isinstance(node, ast.Import) for alias in node.names}
        imported |= {node.module for node in walked if isinstance(node, ast.ImportFrom) and node.module}
        lines: dict[str, int] = {}
        for node in walked:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                lines.setdefault(node.id, node.lineno)
        for node in syntax.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                lines.setdefault(node.name, node.lineno)
        try:
            code = compile(rewrite_python(syntax, calls), _file_of(name), "exec", dont_inherit=True, optimize=0)
        except (SyntaxError, ValueError, RecursionError) as error:
            raise Unloadable(
                [SourceError(getattr(error, "lineno", 0) or 0, f"the code cannot be compiled: {error}", "")], name
            ) from error
        return cls(name, code, rebound, nonlocals, functions, frozenset(imported.intersection(modules)), lines, calls)


def _file_of(name: str) -> str:
    return f"<{name}>"


def _parsed(text: str, name: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text, _file_of(name))
    except SyntaxError as error:
        raise Unloadable(
            [SourceError(error.lineno or 0, f"the code is not valid Python: {error.msg}", "see the line")], name
        ) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise Unloadable([SourceError(0, f"the code is not valid Python: {error}", "")], name) from error


class Interpreter:
    """A program with its variables, and with those of the project's modules that it imports.

    `main`: the text with the functions to call. `modules`: the texts that it imports, directly or not, loaded before it.
    `snippets`: texts whose functions `esp.call` calls. They keep no variables, since each window would keep its own. `init`: a
    function to call once after loading, with `settings` if not None. `transient`: variables that are not kept.
    """

    def __init__(
        self,
        main: PythonText,
        modules: Mapping[str, PythonText],
        limits: PythonLimits,
        snippets: Mapping[str, PythonText] = MappingProxyType({}),
        *,
        init: str = "",
        settings: Mapping[str, str] | None = None,
        transient: Sequence[str] = (),
    ) -> None:
        self._init, self._settings, self._transient = init, settings, frozenset(transient)
        self.main, self.modules, self.snippets = main, modules, snippets
        self.limits = limits
        self.meter = Meter(limits)
        self.clock = VirtualClock()
        self.keeper = Keeper(limits.kept_bytes)
        self.guards = Guards(self.meter)
        self.names = builtin_names(self.guards) | {"__import__": self._import}
        if main.calling_convention is CallingConvention.WITH_COLUMNS:
            self.names |= {EACH: self.guards.rows.map_column, "zip": self.guards.rows.zip}
            rebound = main.rebound.union(*(text.rebound for text in (*modules.values(), *snippets.values())))
            self.guards.rows.set_change_check(lambda: self.keeper.has_kept_changes, rebound)
        self._found: dict[str, Namespace] = {}
        self._texts: dict[str, PythonText] = {}
        self.meter.begin_call(limits.steps * LOADING_FACTOR)
        self.names[TICK] = self.meter.tick
        at_fixed_level(self._load_texts)

    def _load_texts(self) -> None:
        self._snippets = {name: self._snippet(name, text) for name, text in sorted(self.snippets.items())}
        self.variables = self._load_module(self.main, "")
        self._settle()

    def function(self, name: str) -> Callable[..., Any] | None:
        found = self.variables.get(name)
        return found if isinstance(found, FunctionType) else None

    def begin_call(self, time_us: int, seed: int) -> None:
        """Begins a call at the event's time: resets the count of steps, the clock and the random seed."""
        if not self.meter.begin_again():
            self.meter.begin_call()
            self.names[TICK] = self.meter.tick
        self.clock.reset_call(time_us, seed)

    def call(self, function: Callable[..., Any], arguments: Sequence[Any], time_us: int, seed: int) -> Any:
        """Calls `function` and returns its value. Raises CallFailure if the call fails; its changes are undone."""

        def work() -> Any:
            self.begin_call(time_us, seed)
            try:
                made = function(*arguments)
                self.commit_call()
            except BaseException as error:
                raise self.abort_call(error) from error
            return made

        return at_fixed_level(work)

    def call_without_state(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """Calls `function` without keeping state, and returns its value. All changes are undone. Raises CallFailure if the call
        fails or changed variables.
        """
        return at_fixed_level(lambda: self._call_and_undo(function, arguments))

    def _call_and_undo(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        self.begin_call(0, 0)
        self.guards.rows.begin_call()
        try:
            made = plain_value(function(*arguments))
            self.meter.check_limits()
            self.guards.rows.raise_row_error()
        except BaseException as error:
            raise self.abort_call(error) from error
        changed = self.keeper.has_kept_changes
        self.keeper.roll_back()
        if changed:
            raise CallFailure(CHANGES_VARIABLES)
        return made

    def commit_call(self) -> None:
        """Ends a successful call: commits its changes of variables. Raises LimitExceeded or NotPlain."""
        meter = self.meter
        if meter.is_memory_over or meter.over:
            meter.check_limits()
        self.keeper.commit()

    def abort_call(self, error: BaseException) -> CallFailure:
        """Ends a failed call: undoes its changes and returns the failure to report. Raises CodeOutOfMemory if memory ran out, and
        `error` if it is not an error of the code.
        """
        if isinstance(error, MemoryError) or self.meter.is_memory_over:
            raise CodeOutOfMemory.for_code_of(self.main.name) from error
        self.keeper.roll_back()
        line = _line(error, self.main.code.co_filename)
        over = self.meter.over
        if isinstance(error, RecursionError):
            over = "more functions, or values, within each other than Python can take"
        if over:
            return CallTooLarge(f"takes {over}", line)
        if isinstance(error, NotPlain):
            return CallTooLarge(f"keeps {error}", line)
        if not isinstance(error, Exception):
            raise error
        return CallFailure(self._described(error), line)

    def _described(self, error: Exception) -> str:
        """Returns the type and the message of an error. Addresses are removed from the message, because they differ between
        engines.
        """
        kind = type(error).__name__
        self.begin_call(self.clock.time_us, self.clock.seed)
        try:
            said = str(error)
        except BaseException as other:
            if isinstance(other, MemoryError) or not isinstance(other, Exception | LimitExceeded):
                raise CodeOutOfMemory.for_code_of(self.main.name) from other
            said = ""
        finally:
            self.keeper.roll_back()
        said = without_addresses(said)[:ERROR_LENGTH_MAX].encode(errors="replace").decode()
        return f"{kind}: {said}" if said else kind

    def save(self) -> bytes:
        return encode(self.keeper.freeze())

    def load(self, content: bytes) -> None:
        """Restores the variables from the bytes of `save`. Raises SnapshotDamaged if the bytes do not fit."""
        kept = decode(content, self.keeper)
        for module in self.keeper.modules:
            self.keeper.bind_module(module, kept.get(module, {}))

    def _load_module(self, text: PythonText, module: str) -> dict[str, Any]:
        """Runs the text as a module and returns its variables. Raises Unloadable if running it fails."""
        variables: dict[str, Any] = {"__builtins__": self.names, "__name__": PROGRAM_MODULE}
        for name in sorted(text.imports):
            self._import(name)
        try:
            exec(text.code, variables)  # noqa: S102 user code is executed on purpose
            if module == "" and self._init:
                variables[self._init](*([] if self._settings is None else [dict(self._settings)]))
            rebound = text.rebound
            self.meter.check_limits()
            names, fixed = ModuleVariables(variables, text.nonlocals, self.guards.attributes).classify_variables(
                rebound, self._transient
            )
            self.keeper.track_module(module, variables, names, rebound, fixed)
        except Unloadable:
            raise
        except Unkeepable as error:
            raise Unloadable([SourceError(text.lines.get(error.variable, 0), str(error), error.hint)], text.name) from error
        except (Exception, LimitExceeded, MemoryExhausted) as error:
            if isinstance(error, MemoryError | MemoryExhausted):
                raise CodeOutOfMemory.for_code_of(text.name) from error
            said = f"it takes {error}" if isinstance(error, LimitExceeded) else self._described(error)
            line, hint = (
                _line(error, text.code.co_filename),
                "what runs when the code is loaded, and the init function, must end well",
            )
            raise Unloadable([SourceError(line, f"the code fails when it is loaded: {said}", hint)], text.name) from error
        return variables

    def _snippet(self, name: str, text: PythonText) -> dict[str, Any]:
        variables = self._load_module(text, f"snippet {name}")
        if kept := self.keeper.kept_names(f"snippet {name}"):
            hint = "pass the values as arguments; what a window keeps is in its own code"
            raise Unloadable(
                [SourceError(text.lines.get(kept[0], 0), f"snippet {name} keeps the module variable {kept[0]}", hint)], name
            )
        return variables

    def _caller(self) -> Callable[..., dict[str, Any]]:
        """Returns the function `esp.call` of user code."""
        return lambda *arguments, **named: self._call_snippet(*arguments, **named)

    def _call_snippet(self, *arguments: Any, _pyname_: str = "", _pyfunc_: str = "", **named: Any) -> dict[str, Any]:
        """Implements `esp.call`: calls the function `_pyfunc_` of the snippet `_pyname_`. Returns a dict of `code` (whether it
        succeeded), `results` and `error`.
        """
        function = self._snippets.get(_pyname_, {}).get(_pyfunc_)
        if not isinstance(function, FunctionType):
            return {"code": False, "results": [], "error": f"there is no function {_pyfunc_} in a snippet {_pyname_}"}
        try:
            made = function(*arguments, **named)
        except Exception as error:
            self.guards.check_caught_error()
            return {"code": False, "results": [], "error": without_addresses(str(error))[:ERROR_LENGTH_MAX]}
        return {"code": True, "results": list(made) if isinstance(made, tuple) else [made], "error": ""}

    def _settle(self) -> None:
        """Commits the variables of all texts after loading. Raises Unloadable if a value cannot be kept."""
        try:
            self.keeper.commit()
        except NotPlain as error:
            message, hint = f"the code fails when it is loaded: it keeps {error}", "keep plain values in module variables"
            raise Unloadable([SourceError(0, message, hint)], self.main.name) from error

    def _import(self, name: str, globals_: Any = None, locals_: Any = None, members: Any = (), level: int = 0) -> Any:
        """Implements `import` of user code: returns the namespace of a project's module, of `esp`, or of an importable module."""
        found = self._found.get(name)
        if found is None:
            if name in self.modules:
                found = self._found[name] = Namespace(name, {})
                found.__dict__ = self._load_module(self.modules[name], name)
            elif name == ESP:
                found = self._found[name] = Namespace(name, {"call": self._caller(), "logMessage": ignore_output})
            elif name not in IMPORTABLE:  # an import within one of Python's own functions
                return importlib.import_module(name)
            else:
                found = self._found[name] = namespace(name, self.guards, self.clock)
        for member in members or ():
            if f"{name}.{member}" in IMPORTABLE:
                found.__dict__[member] = self._import(f"{name}.{member}", members=("*",))
        first, _, rest = name.partition(".")
        if not rest or members:
            return found
        return Namespace(first, {rest: found})


def _line(error: BaseException, file: str) -> int:
    """Returns the innermost line of the text `file` in the error's traceback; 0 if the error occurred elsewhere."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
