"""Modules of user code: their members are listed and immutable, and refusals name a replacement (SPEC A36)."""

from __future__ import annotations

import types

import pytest

from hotspare.scripting.python.guards import Guards
from hotspare.scripting.python.meter import Meter, PythonLimits
from hotspare.scripting.python.modules import IMPORTABLE, REFUSED, REFUSED_MEMBERS, import_refusal, namespace
from hotspare.scripting.python.virtual_clock import VirtualClock
from tests.scripting.python.modules_page import PAGE, render
from tests.scripting.python.programs import mistakes


def test_page_is_fresh() -> None:
    assert PAGE.read_text() == render(), "run `make docs`"


@pytest.mark.parametrize("module", IMPORTABLE)
def test_no_member_of_a_module_is_a_module_or_a_container(module: str) -> None:
    """Another window of the process could change it."""
    found = vars(namespace(module, Guards(Meter(PythonLimits())), VirtualClock()))
    assert [name for name, value in found.items() if isinstance(value, types.ModuleType | list | dict | set | bytearray)] == []


@pytest.mark.parametrize("name", sorted({**REFUSED, **REFUSED_MEMBERS}))
def test_what_is_refused_says_what_to_use(name: str) -> None:
    module, _, member = name.rpartition(".")
    hint = import_refusal(name, "") if name in REFUSED else import_refusal(module, member)
    assert hint == {**REFUSED, **REFUSED_MEMBERS}[name]


def test_a_member_that_is_not_there_is_found_when_the_code_is_loaded() -> None:
    assert list(mistakes("import keyword\ndef f(x): return keyword.kwlist")) == [(2, "keyword.kwlist does not exist")]
    assert list(mistakes("from string import Template")) == [(1, "string.Template cannot be imported")]
