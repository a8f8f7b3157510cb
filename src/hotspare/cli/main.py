"""The `hotspare` command: one file per command, errors as text, stable exit statuses for scripts.

Exit status 0: success; 1: failure; 2: an invalid command line, setting or project; 130: Ctrl-C before the command has a handler of
its own. This module and the tops of the commands' files import only light modules, so that `--help` is quick.
"""

from __future__ import annotations

import importlib
import os
import sys
import textwrap
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from hotspare import __version__
from hotspare.base.errors import HotspareError, ProjectError, UsageError
from hotspare.base.interpreter import fix_environment
from hotspare.telemetry.secrets import masked

GROUPS: dict[str, tuple[str, ...]] = {
    "Run": ("run", "start", "stop"),
    "Data": ("publish", "subscribe", "adapter", "topics"),
    "Operate": ("status", "switchover", "quality", "quarantine", "persist", "restore", "upgrade", "state", "reset"),
    "Develop": ("init", "validate", "assess", "replay", "trace", "demo", "dev"),
}
"""The headings of the help, each with its commands."""
COMMANDS: tuple[str, ...] = tuple(name for names in GROUPS.values() for name in names)
"""The names of the commands in the order of the help. The module `hotspare.cli.<name>` has a function `command`, or a mapping
`commands` from subcommands to functions."""

_SENTENCE_LENGTH_MAX = 1_000
_PACKAGE = Path(__file__).parents[1]

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class _Grouped(TyperGroup):
    """Formats the help of `hotspare`: commands by heading, each with its complete first sentence, even on a narrow terminal. The
    types of context and formatter are from the click that typer bundles, which is not public."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for heading, names in GROUPS.items():
            found = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(heading):
                formatter.write_dl([(name, each.get_short_help_str(_SENTENCE_LENGTH_MAX)) for name, each in found if each])


class _Sections(TyperCommand):
    """A command whose hidden options only the settings file may set; on the command line they raise UsageError. The help lists all
    other options by panel, those without a panel first, because typer supports panels only with rich."""

    def invoke(self, ctx: Any) -> Any:
        for name, param in self._hidden(ctx).items():
            source = ctx.get_parameter_source(param.name)
            if source is not None and source.name == "COMMANDLINE":
                hint = f"write `{name}: VALUE` in FILE, and give --settings FILE"
                raise UsageError(f"--{name} can be set only in a settings file", hint=hint)
        return super().invoke(ctx)

    def _hidden(self, ctx: Any) -> dict[str, Any]:
        """Returns the hidden options by name."""
        return {each.opts[0].removeprefix("--"): each for each in self.get_params(ctx) if getattr(each, "hidden", False)}

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            heading = getattr(param, "rich_help_panel", None) or ("Arguments" if isinstance(param, TyperArgument) else "Options")
            if record is not None:
                sections.setdefault(heading, []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        if hidden := sorted(self._hidden(ctx)):
            with formatter.section("Only in the file of --settings"):
                width = formatter.width - formatter.current_indent
                lines = textwrap.wrap(", ".join(hidden), width, break_on_hyphens=False)
                formatter.write("".join(f"{'':{formatter.current_indent}}{line}\n" for line in lines))


def build_app(names: Sequence[str] = COMMANDS) -> typer.Typer:
    """Returns the typer application with the commands `names`, some or all of `COMMANDS`."""
    application = typer.Typer(
        name="hotspare",
        cls=_Grouped,
        help="1+N hot-standby event processing on Apache Spark: no event lost, doubled or wrong.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )

    @application.callback()
    def options(
        *,
        version: Annotated[
            bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version of hotspare and exit.")
        ] = False,
    ) -> None:
        pass

    for name in names:
        module = importlib.import_module(f"hotspare.cli.{name}")
        if hasattr(module, "commands"):
            application.add_typer(_several(module.commands), name=name, help=module.HELP)
        else:
            application.command(name, cls=_Sections)(module.command)
    return application


def _several(commands: Mapping[str, Callable[..., None]]) -> typer.Typer:
    """Returns a typer application with these subcommands."""
    found = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    for name, function in commands.items():
        found.command(name, cls=_Sections)(function)
    return found


def _print_version(is_asked: bool) -> None:  # noqa: FBT001  typer calls it so
    if is_asked:
        typer.echo(f"hotspare {__version__}")
        raise typer.Exit


def main() -> None:
    """Runs the command of `sys.argv`, and exits the process with its status."""
    fix_environment()
    try:
        named = [word for word in sys.argv[1:2] if word in COMMANDS]
        build_app(named or COMMANDS)(prog_name="hotspare")  # a named command does not import the others
    except HotspareError as error:
        _show(error, str(error))
        sys.exit(EXIT_USAGE if isinstance(error, UsageError | ProjectError) else EXIT_FAILED)
    except KeyboardInterrupt:  # before a command has set its own handler
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)
    except Exception as error:
        _show(error, _unexpected(error))
        sys.exit(EXIT_FAILED)


def _unexpected(error: Exception) -> str:
    """Returns a text of several lines: the error, its notes, its place in hotspare's code, its causes, and a hint."""
    lines = [f"unexpected {type(error).__name__}: {error}", *(f"  {note}" for note in getattr(error, "__notes__", ()))]
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).is_relative_to(_PACKAGE)]
    if frames:
        last = frames[-1]
        lines.append(f"  at hotspare/{Path(last.filename).relative_to(_PACKAGE).as_posix()}:{last.lineno}, in {last.name}")
    cause = error.__cause__
    while cause is not None:
        lines.append(f"  because of {type(cause).__name__}: {cause}")
        cause = cause.__cause__
    lines.append("  hint: this is a bug in hotspare: report it; HOTSPARE_DEBUG=1 prints the traceback")
    return "\n".join(lines)


def _show(error: BaseException, text: str) -> None:
    if os.environ.get("HOTSPARE_DEBUG"):
        traceback.print_exception(error)
    sys.stderr.write(f"hotspare: {masked(text)}\n")
