"""Snapshots as hotspare wrote them before rows stood in pages, and before there were key pages; and the events before and after."""

from __future__ import annotations

import base64
import json
from functools import cache
from pathlib import Path

from hotspare.engine.plan import Plan, compile_plan
from hotspare.model.load import load_text
from tests.cases.case import Case, Message
from tests.laws.core_scripts import PROJECT

FOLDER = Path(__file__).parent / "snapshots"

_TEXTS = (
    "I,N,k{i},{at},{x}.5,s{i} | P,N,k1,{at},{x},é | I,N,n{i},,2,t",
    "D,N,k{j},0,0,s | P,P,k{i},,7,",
    "I,N,m{i},{at},-3,xyz | SD,N,n{j},0,0,s",
)


@cache
def plan() -> Plan:
    """Of the project of that time."""
    younger = ("      made_of_each: {type: copy, retention: {bycount_sliding: 1, by: [s]}}\n", "loose -> made_of_each, ")
    text = PROJECT
    for part in younger:
        assert part in text
        text = text.replace(part, "")
    return compile_plan(load_text(text).resolved)


def _messages(begin: int, end: int) -> tuple[Message, ...]:
    made = []
    for i in range(begin, end):
        text = _TEXTS[i % len(_TEXTS)].format(i=i, j=i - 2, x=i % 11, at=i * 300_000)
        source = ("loose", "keyed", "generated")[i // 2 % 3]
        if source == "generated":
            text = f"I,N,,{i * 300_000},{i % 7},g{i % 4}"
        made.append(Message(1_000_000 + i * 400_000, source, text))
        if i % 4 == 3:
            made.append(Message(1_000_000 + i * 400_000 + 1, "", ""))
    return tuple(made)


def before() -> Case:
    return Case(plan(), _messages(0, 40), ())


def after() -> Case:
    """Goes on where `before` ended; its positions are those of the whole, so both are decoded together."""
    return Case(plan(), _messages(0, 80), ())


def stored(format_: int) -> tuple[bytes, dict[str, bytes]]:
    """Header and pages. In format 3 of `plan`, in format 4, with 16 slots a page, of the project of the laws."""
    content = json.loads((FOLDER / f"format_{format_}.json").read_text())
    return content["header"].encode(), {name: base64.b64decode(page) for name, page in content["pages"].items()}
