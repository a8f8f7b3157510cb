"""The events of interest of the law of patterns as functions in Python, equivalent to their conditions."""

from __future__ import annotations

from collections.abc import Sequence

ASKED = {
    "one": "x == 1",
    "any": "True",
    "text": "y == 'b'",
    "bind": "True",
    "more": "None not in (x, w) and x > w",
    "same": "x is not None and x >= 1",
    "twice": "None not in (x, w) and w * 2 <= x",
    "other": "None not in (r, x, z) and r != z and x > 0",
    "real": "True",
    "least": "None not in (r, z) and z < r",
    "apart": "y == 'a' or (None not in (x, w) and x - w > 1)",
    "far": "None not in (x, w, v, k) and abs(x - w) >= 2 and v != k",
}
BINDS = {"text": {"v": "k"}, "bind": {"w": "x"}, "same": {"v": "k"}, "real": {"r": "z"}}

_COMMON = """
calls = 0

def bound(event, data, is_true, binds):
    for name, field in binds.items():
        if event[field] is None or data.get(name, event[field]) != event[field]:
            return False
    return is_true, {name: event[field] for name, field in binds.items()}

def number(context, name):
    found = context["events"].get(name)
    return found[-1]["n"] if isinstance(found, list) and found else found["n"] if found else None
"""
_ASKED = """
def {name}(event, context):
    global calls
    calls += 1
    data = context["data"]
    k, x, y, z = event["k"], event["x"], event["y"], event["z"]
    v, w, r = data.get("v"), data.get("w"), data.get("r")
    return bound(event, data, {asked}, {binds})
"""
_OUTPUT = """
def output(context):
    return {{"first": number(context, {first!r}), "last": number(context, {last!r}), "calls": calls}}
"""


def code_of(names: Sequence[str], first: str, last: str) -> str:
    """Returns a text for a pattern whose outputs are the numbers of two events, and the number of calls of its functions."""
    asked = [_ASKED.format(name=f"is_{name}", asked=ASKED[name], binds=BINDS.get(name, {})) for name in names]
    return "".join((_COMMON, *asked, _OUTPUT.format(first=first, last=last)))
