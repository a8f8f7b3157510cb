"""Where an engine listens for the others of its group, and what it says about that (DESIGN section 5).

By default it is reached from this machine alone while bus and coordination are on this machine; else at the address by which this
machine reaches the first server of coordination, or of the bus, that is elsewhere.
"""

from __future__ import annotations

from hotspare.base.addresses import HostPort, address_towards, checked_host_port
from hotspare.bus.open import bus_servers
from hotspare.coordination.open import coordination_servers
from hotspare.host.options import EngineOptions

_WILDCARDS = frozenset({"0.0.0.0", "::"})  # noqa: S104


def peer_addresses(options: EngineOptions, coordination_url: str) -> tuple[HostPort, HostPort]:
    """(where to listen, where the others reach this engine). UsageError where the second cannot be told."""
    listen = checked_host_port(options.listen, "--listen") if options.listen else None
    if options.address:
        address = checked_host_port(options.address, "--address")
    elif listen is not None and listen.host not in _WILDCARDS:
        address = listen
    else:
        own = address_towards((*coordination_servers(coordination_url), *bus_servers(options.bus_url)))
        address = HostPort(own, listen.port if listen is not None else 0)
    return listen or address, address
