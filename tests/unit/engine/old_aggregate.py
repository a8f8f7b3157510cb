"""A snapshot of aggregates as hotspare wrote it before values of small groups stood in the row of their group (semantics 6); and
events before and after it: groups of a few rows, of many, and of doubles that differ much in size."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from hotspare.engine.plan import Plan, compile_plan
from hotspare.model.load import load_text
from tests.cases.case import Case, Message

FILE = Path(__file__).parent / "snapshots" / "aggregates_semantics_6.json"
PROJECT = """
project: p
queries:
  q:
    windows:
      rows: {type: source, schema: "id*:int64,g:string,x:double,n:int64"}
      groups: {type: aggregate, schema: "g*:string,a:double,b:double,c:int64,d:double,e:double,f:double",
               outputs: {a: ESP_aMin(x), b: ESP_aMax(x), c: ESP_aCountDistinct(n), d: median(x), e: ESP_aSum(x), f: ESP_aAve(n)}}
    edges: [rows -> groups]
"""
BEFORE, ALL = 60, 160
"""Messages, of an event each."""


def plan() -> Plan:
    return compile_plan(load_text(PROJECT).resolved)


def _text(i: int) -> str:
    """Sixteen rows, which come, change their group and their values, and go in the end."""
    id_ = i * 7 % 16
    if i >= 112:
        return f"SD,N,{id_},,,"
    group = "few" if id_ % 8 < 1 else "odd" if id_ % 8 == 1 else "many"
    x = ("1e300", "-3e-200", "2.5")[i % 3] if group == "odd" else i * 37 % 23 / 4
    return f"P,N,{id_},{'few' if i % 31 == 0 else group},{x},{i % 5}"


def case(messages: int) -> Case:
    return Case(plan(), tuple(Message(1_000_000 + i, "rows", _text(i)) for i in range(messages)), ())


def stored() -> tuple[bytes, dict[str, bytes]]:
    """Header and pages."""
    content = json.loads(FILE.read_text())
    return content["header"].encode(), {name: base64.b64decode(page) for name, page in content["pages"].items()}
