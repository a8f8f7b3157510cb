"""The properties that two engines must share to compute the same outputs, as a hash and as differences in sentences (SPEC A44).

Both are made from the same description, so projects differ in sentences exactly when their hashes differ. The description contains
all that determines outputs: windows with their schemas, expressions and retention, inputs, evaluation order, published windows, the
heartbeat. It excludes connectors, descriptions, metadata, tracing, places, and the form of the text.
"""

from __future__ import annotations

import hashlib
import json

from hotspare.model.delivery import delivery_meaning
from hotspare.model.durations import format_duration
from hotspare.model.meanings import emission_meaning, expression_meaning, initialization_meaning
from hotspare.model.project import EVERY_SLOT, Beats, IndexType, Project, RetentionTracking, WindowId
from hotspare.model.resolved import Resolved, ResolvedWindow
from hotspare.model.window_type import type_of
from hotspare.projects.resolve import resolve
from hotspare.projects.yaml import dump, load

FORMAT = "hotspare-project-1"
"""The version of the description. Any change to the description must change it, so that no two meanings have the same hash."""
_BEATS = "beats"


def project_hash(project: Project) -> str:
    """Returns 64 hexadecimal digits, equal for equal descriptions, on every machine. Raises ProjectError for an invalid project."""
    return resolved_hash(resolve(project))


def resolved_hash(resolved: Resolved) -> str:
    text = json.dumps([FORMAT, _description(resolved)], ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def differences(before: Project, after: Project) -> list[str]:
    """Returns sentences that describe the changes; empty exactly when the hashes are equal."""
    old, new = _description(resolve(before)), _description(resolve(after))
    sentences = []
    for subject in dict.fromkeys([*old, *new]):
        if subject not in new:
            sentences.append(f"{subject} was removed")
        elif subject not in old:
            sentences.append(f"{subject} was added")
        else:
            sentences += _changes(subject, old[subject], new[subject])
    if not sentences and list(old) != list(new):
        sentences.append("the order in which windows are evaluated changed: " + ", ".join(list(new)[1:]))
    return sentences


def window_meaning(resolved: ResolvedWindow) -> dict[str, str]:
    """Returns the properties that determine a window's outputs and its state, without those of its stream."""
    of_stream = stream_meaning(resolved)
    return {what: said for what, said in _window(resolved).items() if what not in of_stream}


def window_version(resolved: ResolvedWindow) -> str:
    """Returns 12 hexadecimal digits, equal for windows of equal meaning whose code calls modules of equal meaning."""
    meaning = [window_meaning(resolved), {str(module): module.meaning() for module in resolved.modules}]
    text = json.dumps(meaning, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:12]


def stream_meaning(resolved: ResolvedWindow) -> dict[str, str]:
    """Returns the properties that determine which outputs of a window its stream holds; empty if it holds all outputs unchanged and
    no beats."""
    beats = {} if resolved.window.beats is Beats.EXCLUDED else {_BEATS: resolved.window.beats.value}
    return beats | delivery_meaning(resolved.window)


def window_changes(before: ResolvedWindow, after: ResolvedWindow) -> list[str]:
    """Returns sentences for the changes of one window, its stream included."""
    return _changes(f"window {after.id}", _window(before), _window(after))


def to_document(project: Project) -> str:
    """Returns a text from which `from_document` builds an equal project, whether the project was written in YAML or ESP XML."""
    return dump(project)


def from_document(text: str) -> Project:
    return load(text, "stored project")


def _changes(subject: str, old: dict[str, str], new: dict[str, str]) -> list[str]:
    return [
        f"{subject}: {what} was {old.get(what) or 'absent'}, is {new.get(what) or 'absent'}"
        for what in dict.fromkeys([*old, *new])
        if old.get(what) != new.get(what)
    ]


def _description(resolved: Resolved) -> dict[str, dict[str, str]]:
    """Returns the description: subject to property to text. The windows are in evaluation order, which is part of the meaning."""
    project = resolved.project
    subjects = {
        "project": {
            "name": project.name,
            "heartbeat": format_duration(project.heartbeat_interval_us),
            "inbound topics": ", ".join(map(str, resolved.sources)),
            "published windows": ", ".join(map(str, resolved.streams)),
        }
    }
    if project.retention_tracking is RetentionTracking.ON:
        subjects["project"]["retention tracking"] = project.retention_tracking.value
    modules = {str(module): module for w in resolved.windows for module in w.modules}
    subjects |= {name: modules[name].meaning() for name in sorted(modules)}
    return subjects | {f"window {w.id}": _window(w) for w in resolved.windows}


def _window(resolved: ResolvedWindow) -> dict[str, str]:
    window = resolved.window
    window_type = type_of(window)
    text = {
        "type": window_type.name,
        "schema": str(resolved.schema),
        # All keyed types behave alike (SPEC A14), so only keeping nothing has another meaning.
        "index": "empty" if window.index is IndexType.EMPTY else "keyed",
        "inputs": ", ".join(_input(*each, slot) for each, slot in zip(resolved.inputs, resolved.slots, strict=True)),
    }
    if window.splitter is not None:
        text["splitter"] = expression_meaning(window.splitter)
        text |= {f"splitter {what}": said for what, said in initialization_meaning(window.splitter_initialization).items()}
    if resolved.forwarding_windows:
        text["forwarded"] = ", ".join(map(str, resolved.forwarding_windows))
    if window.text_bytes_max:
        text["text bytes"] = str(window.text_bytes_max)
    if window.beats is not Beats.EXCLUDED:
        text[_BEATS] = window.beats.value
    return text | emission_meaning(window.emission) | delivery_meaning(window) | window_type.meaning(window, resolved.schema)


def _input(source: WindowId, role: str, slot: int) -> str:
    return str(source) + (f" as {role}" if role else "") + (f" slot {slot}" if slot != EVERY_SLOT else "")
