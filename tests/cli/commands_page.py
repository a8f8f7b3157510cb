"""Writes docs/commands.md from the commands' own help: `make docs`. A test compares the page with `page()`."""

from __future__ import annotations

import importlib
import inspect
from enum import Enum
from pathlib import Path

import typer
from typer.main import get_command
from typer.testing import CliRunner

from hotspare.cli.main import COMMANDS, build_app
from hotspare.operate import report

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
_WIDTH = 110

_HEAD = """# Commands

After this page you can look up every command, option, default and exit status. `hotspare NAME --help` shows the same text. The page
is written by `make docs` from the commands' help; change the text there.

| exit status | if |
|---|---|
| 0 | the command did what was requested |
| 1 | it failed, or the command's help names another reason |
| 2 | the command line, a setting or the project cannot be used |
| 70 | under `hotspare run --restart never`, Spark ended, or no input arrived for `pipeline-stall-ms` although some was pending |
| 75 | under `hotspare run --restart never`, the engine has to start again, because its state is void |
| by SIGKILL (137) | under `hotspare run --restart never`, a call of user code exceeded `--code-deadline-ms` or `code-memory` |
| 130, 143 | Ctrl-C (130) or SIGTERM (143) came twice; Ctrl-C also if it came before the command began its work |

Errors go to standard error as a code, a sentence, details and a hint; `HOTSPARE_DEBUG=1` adds the traceback. Progress is shown on
standard error if that is a terminal. Ctrl-C requests a clean end, a second one ends the process at once. `hotspare run` ends as its
engine does, unless it starts the engine again.
"""

_SETTINGS = """
### Settings file

`hotspare run PROJECT --bus URL --settings FILE` takes options from a YAML file, by the names that they have on the command
line. This file has every option that is given in it alone, and some of the others:

```yaml
# The same for every engine of the group.
skew-max-ms: 5000
on-poison: bad-event
on-hang: bad-event
bus-retention-ms: 86400000
create-time: refuse
held-bytes-max: 268435456
code-memory: 2GiB
messages-max: 20000
pipeline-stall-ms: 300000
on-divergence: stop
task-lease-ms: 10000
rebalance-after-ms: 60000

# Also options of the command line, where one wins over this file.
lease-ms: 1000
snapshots: [10 seconds, incremental]
memory: 4GiB
page-folder: pages
set:
  limit: 7
bind:
  orders/trades/in: {{fsname: trades.csv}}
conf:
  spark.executor.memory: 4g
```

- An option that may be repeated is a list; `set`, `bind` and `conf` are mappings. On the command line it replaces the whole list or
  mapping.
- A relative path begins at the file's folder.
- `bus`, `coordination`, `store` and `restore`, which may hold passwords, are given on the command line.
- The engine does not start if the file has a mistake. All mistakes are reported, each with file and line:
  `settings.yaml:3:1: setting 'laese-ms' does not exist`, `hint: did you mean 'lease-ms'?`.

| in the file alone | | default |
|---|---|---|
{rows}
"""

_STATUS = """
## The document of `hotspare status --json`

{text}
"""


def page() -> str:
    """Returns the whole page."""
    application = build_app()
    parts = [_HEAD]
    for name in (each for command in COMMANDS for each in _with_its_own(command)):
        done = CliRunner().invoke(application, [*name.split(), "--help"], prog_name="hotspare", terminal_width=_WIDTH, color=False)
        help_text = "\n".join(line.rstrip() for line in done.output.strip().splitlines())
        parts.append(f"\n## hotspare {name}\n\n```text\n{help_text}\n```\n")
        if name == "run":
            parts.append(_SETTINGS.format(rows=_rows_of_settings(application)))
    parts.append(_STATUS.format(text=inspect.getdoc(report)))
    return "".join(parts)


def _rows_of_settings(application: typer.Typer) -> str:
    """Returns a row for each option of `run` that only a settings file may give."""
    hidden = [param for param in get_command(application).commands["run"].params if getattr(param, "hidden", False)]
    rows = {param.opts[0].removeprefix("--"): (param.help, param.default) for param in hidden}
    return "\n".join(f"| `{name}` | {help_} | {_shown(default)} |" for name, (help_, default) in sorted(rows.items()))


def _shown(default: object) -> str:
    value = default.value if isinstance(default, Enum) else default
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _with_its_own(command: str) -> list[str]:
    """Returns the command and its subcommands."""
    own = getattr(importlib.import_module(f"hotspare.cli.{command}"), "commands", {})
    return [command, *(f"{command} {each}" for each in own)]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
