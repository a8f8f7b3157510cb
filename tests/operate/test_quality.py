"""The qualities of streams as a program requests and reads them (SPEC D1, Z16)."""

from __future__ import annotations

import pytest

from hotspare.base.errors import UsageError
from hotspare.coordination.contract import Coordination
from hotspare.coordination.memory import MemoryCoordination
from hotspare.ha.outputs.qualities import agree_on_qualities
from hotspare.model.quality import SIMPLE
from hotspare.operate.quality import EngineBehind, StreamQuality, await_quality, request_quality, stream_qualities
from tests.cli.test_quality import GROUP, TOPICS, member

OTHER = "p.other"


@pytest.fixture
def service() -> Coordination:
    client = MemoryCoordination().client()
    agree_on_qualities(client, GROUP, TOPICS)
    return client


def test_a_change_names_the_engines_that_are_behind(service: Coordination) -> None:
    versions = request_quality(service, [GROUP], "q/sums", SIMPLE)
    assert versions == {GROUP: 1}
    service.refresh_member(GROUP, member("e0", 1, "simple", '["q/sums"]'))
    service.refresh_member(GROUP, member("e1", 0, "precise"))
    assert not await_quality(service, versions, 0)
    sums, rest = stream_qualities(service, GROUP)
    assert sums == StreamQuality("q/sums", "simple", (EngineBehind("e0", "simple"), EngineBehind("e1", "precise")))
    assert rest.behind == ()
    service.refresh_member(GROUP, member("e1", 1, "simple"))
    assert await_quality(service, versions, 0)
    assert stream_qualities(service, GROUP)[0].behind == (EngineBehind("e0", "simple"),)


def test_nothing_is_requested_unless_every_group_can_follow(service: Coordination) -> None:
    with pytest.raises(UsageError, match=f"no engine of group {OTHER} ever started"):
        request_quality(service, [GROUP, OTHER], "q/sums", SIMPLE)
    assert stream_qualities(service, GROUP)[0].requested == "precise"
