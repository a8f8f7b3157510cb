"""What an engine checks of the streams of other projects that its project reads (SPEC K10)."""

from __future__ import annotations

import pytest

from hotspare.adapters.metadata import describe, publish_metadata
from hotspare.base.errors import UsageError
from hotspare.bus.contract import Outgoing, Partition
from hotspare.bus.memory import MemoryBus, MemoryBusClient
from hotspare.bus.naming import metadata_topic
from hotspare.host.cascades import check_streams_read
from hotspare.model.resolved import Resolved
from hotspare.projects.load import load_text

PROJECT = """
project: NAME
queries:
  q:
    windows:
      given: {type: source, opcodes: any, schema: "FIELDS"READS}
      made: {type: copy, publish: true, beats: included}
    edges: [given -> made]
"""


def project(name: str, reads: str = "", fields: str = "id*:int64,x:double") -> Resolved:
    text = PROJECT.replace("NAME", name).replace("FIELDS", fields).replace("READS", f", reads: {reads}" if reads else "")
    return load_text(text).resolved


def told(*projects: Resolved) -> MemoryBusClient:
    """A bus that tells of them."""
    bus = MemoryBus().client("c")
    for each in projects:
        publish_metadata(bus, "p", describe(each, "p"))
    return bus


def refusal(bus: MemoryBusClient, resolved: Resolved) -> UsageError:
    with pytest.raises(UsageError) as refused:
        check_streams_read(bus, "p", resolved)
    return refused.value


def test_the_same_fields_and_a_project_that_is_not_known_pass() -> None:
    check_streams_read(told(project("a")), "p", project("b", "a/q/made"))
    check_streams_read(told(project("a")), "p", project("b", "a/q/made", "id:int64,x*:double"))  # another key
    check_streams_read(told(), "p", project("b", "a/q/made"))


@pytest.mark.parametrize("fields", ["id*:int64,y:double", "id*:int64,x:int64", "x:double,id*:int64", "id*:int64"])
def test_other_fields_are_refused_with_both(fields: str) -> None:
    error = refusal(told(project("a", fields=fields)), project("b", "a/q/made"))
    assert error.message == "window q/given has other fields than a/q/made, which it reads"
    assert error.detail == f"it has id:int64,x:double, the stream has {fields.replace('*', '')}"


@pytest.mark.parametrize("window", ["q/given", "q/other", "other/made"])
def test_a_window_that_is_not_put_out_is_refused_with_those_that_are(window: str) -> None:
    error = refusal(told(project("a")), project("b", f"a/{window}"))
    assert error.message == f"window q/given reads a/{window}, which project a does not put out"
    assert error.hint == "its streams are: a/q/made"


def test_projects_that_read_each_other_are_refused() -> None:
    """Each would wait for the other one's time."""
    error = refusal(told(project("a", "b/q/made")), project("b", "a/q/made"))
    assert error.message == "projects read each other in a ring: b, which reads a, which reads b"
    three = told(project("a", "b/q/made"), project("c", "a/q/made"))
    assert refusal(three, project("b", "c/q/made")).message.endswith("b, which reads c, which reads a, which reads b")
    others = told(project("a", "c/q/made"), project("c", "a/q/made"))  # theirs, and not this project's
    check_streams_read(others, "p", project("b", "a/q/made"))


def test_what_cannot_be_read_is_passed_over() -> None:
    bus = told(project("a", fields="id*:int64"))
    bus.append(Partition(metadata_topic("p")), [Outgoing(b"{}", (("hotspare-project", b"a@"),))])
    check_streams_read(bus, "p", project("b", "a/q/made"))
