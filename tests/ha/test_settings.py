"""Settings that contradict themselves are refused by name."""

import pytest

from hotspare.base.errors import UsageError
from hotspare.ha.rules.settings import GroupSettings


@pytest.mark.parametrize("name", ["lease_ms", "heartbeat_ms", "leader_poll_ms", "held_bytes_max", "commit_rows_max"])
def test_a_setting_of_0_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        GroupSettings(**{name: 0})


@pytest.mark.parametrize("name", ["candidate_wait_ms", "snapshot_interval_ms", "divergence_wait_ms"])
def test_some_may_be_0_and_none_less(name: str) -> None:
    GroupSettings(**{name: 0})
    with pytest.raises(UsageError, match=name):
        GroupSettings(**{name: -1})


def test_a_lease_too_short_to_renew_is_refused() -> None:
    with pytest.raises(UsageError, match="lease_ms"):
        GroupSettings(lease_ms=3)


@pytest.mark.parametrize(("lease_ms", "heartbeat_ms", "tick_ms"), [(1000, 1000, 250), (1000, 100, 100), (8, 1000, 2)])
def test_ticks_are_as_frequent_as_the_lease_needs(lease_ms: int, heartbeat_ms: int, tick_ms: int) -> None:
    """Every tick makes a batch, and a batch keeps the lease, so each renewal interval has a tick (SPEC Z22)."""
    settings = GroupSettings(lease_ms=lease_ms, heartbeat_ms=heartbeat_ms)
    assert settings.tick_interval_ms == tick_ms
    assert settings.tick_interval_ms <= settings.renew_interval_ms
