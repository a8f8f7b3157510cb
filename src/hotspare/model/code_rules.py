"""Rules for user code in a project (SPEC A26, A36, A38)."""

from __future__ import annotations

from collections.abc import Sequence

from hotspare.model.code import Arguments, Code, FieldChoice, Language, Module, ModuleUse, Script
from hotspare.model.mistakes import Mistakes
from hotspare.model.names import FIELD_NAME, first_unprintable, nearest_names_hint, repeated
from hotspare.model.project import Window

CODE_LENGTH_MAX = 1 << 20
STEPS_MAX, STATE_BYTES_MAX = 10**12, 1 << 30
"""The largest limits that a project may request for its code."""


def check_script(window: Window, script: Script, given: Sequence[str] | None, found: Mistakes) -> None:
    """Checks the script of a window. `given`: names of the fields of all inputs, None if unknown."""
    place = script.code.place if script.code.place.line else window.place
    if not script.code.text.strip():
        found.add(place, f"window {window.name} has no code", "write the function that it calls for each event")
    _check_text(f"window {window.name}", script.code, found)
    if not FIELD_NAME.fullmatch(script.function):
        hint = "name the function that the code defines"
        found.add(window.place, f"window {window.name} names no function to call for each event", hint)
    check_field_choice(window, "use", script.use, given, found)
    if script.arguments is Arguments.FIELDS and script.language is not Language.PYTHON:
        message = f"window {window.name} passes fields by name to code in {script.language.value}, which has no named arguments"
        found.add(place, message, "let its function take the event, and read the fields from it")
    limits = (("steps", script.limits.steps_max, STEPS_MAX), ("state bytes", script.limits.state_bytes_max, STATE_BYTES_MAX))
    for what, value, most in limits:
        if not 0 < value <= most:
            found.add(window.place, f"window {window.name} has a limit of {value} {what}", f"use one from 1 to {most}")


def check_field_choice(window: Window, what: str, chosen: FieldChoice, given: Sequence[str] | None, found: Mistakes) -> None:
    """Checks that the chosen fields exist. `what`: the project's key for them. `given`: names of the existing fields, None if
    unknown.
    """
    if given is None:
        return
    for name in chosen.names:
        if name not in given:
            found.add(
                window.place, f"window {window.name} has the unknown field {name!r} under {what}", nearest_names_hint(name, given)
            )


def check_modules(modules: Sequence[Module], found: Mistakes) -> None:
    for name in repeated(str(module) for module in modules):
        second = [module for module in modules if str(module) == name][1]
        what, _, written = name.partition(" ")
        found.add(second.code.place, f"there are two {what}s {written}", "give one of them another name")
    for module in modules:
        what = module.use.value
        if not FIELD_NAME.fullmatch(module.name):
            found.add(module.code.place, f"{what} name {module.name!r} cannot be used", "use letters, digits and '_'")
        if module.init and not (module.use is ModuleUse.SNIPPET and module.language is Language.LUA):
            message = f"{module} in {module.language.value} has a function {module.init} that is called first"
            found.add(module.code.place, message, "snippets in Lua may have one; others do what they need when they are loaded")
        _check_text(str(module), module.code, found)


def check_required(window: Window, script: Script, modules: Sequence[Module], found: Mistakes) -> None:
    """Checks that the modules that the code needs exist, in its language."""
    known = {module.name: module for module in modules if module.use is ModuleUse.MODULE}
    for name in script.modules:
        if name not in known:
            found.add(window.place, f"window {window.name} needs the unknown module {name!r}", nearest_names_hint(name, known))
        elif known[name].language is not script.language:
            message = f"window {window.name} needs module {name}, which is in {known[name].language.value}"
            found.add(window.place, message, f"name one that is in {script.language.value}")


def _check_text(whose: str, code: Code, found: Mistakes) -> None:
    if len(code.text) > CODE_LENGTH_MAX:
        found.add(code.place, f"the code of {whose} is longer than {CODE_LENGTH_MAX} characters", "shorten it")
    if odd := first_unprintable(code.text):
        found.add(code.place, f"the code of {whose} contains the character {odd!r}", "remove the character")
