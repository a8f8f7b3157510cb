"""Passwords outside URLs: `password_file=` and `password_env=` name their location, in the same way for every server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from hotspare.base.errors import UsageError

PASSWORD_FILE, PASSWORD_ENV = "password_file", "password_env"


def named_password(options: Mapping[str, object]) -> str | None:
    """Returns the password that the options of a URL name, without a line end; None if the options name none. Raises UsageError for
    a file or a variable that cannot be read."""
    path, variable = options.get(PASSWORD_FILE), options.get(PASSWORD_ENV)
    if isinstance(path, str) and path:
        try:
            return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            text, hint = f"{PASSWORD_FILE} {path[:200]} cannot be read", "name a file with the password in it"
            raise UsageError(text, detail=type(error).__name__, hint=hint) from None
    if isinstance(variable, str) and variable:
        if variable not in os.environ:
            raise UsageError(f"{PASSWORD_ENV} {variable[:40]}: no such environment variable", hint="set it for this process")
        return os.environ[variable]
    return None


def take_password(options: dict[str, str]) -> str | None:
    """Returns the result of `named_password`, and removes the password options from `options`."""
    password = named_password(options)
    for option in (PASSWORD_FILE, PASSWORD_ENV):
        options.pop(option, None)
    return password


def password_alone(options: Mapping[str, object], what: str) -> str | None:
    """Returns the result of `named_password`. Raises UsageError for any other option; `what` names the URL's owner in the
    message."""
    for name in options:
        if name not in (PASSWORD_FILE, PASSWORD_ENV):
            raise UsageError(f"option {name[:40]!r} of {what} is not known", hint=f"known: {PASSWORD_FILE}, {PASSWORD_ENV}")
    return named_password(options)
