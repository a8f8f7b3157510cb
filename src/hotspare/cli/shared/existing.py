"""Opens what must be there already: who only looks, or names a file wrongly, makes no file."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from hotspare.base.errors import UsageError
from hotspare.base.places import has_its_file, named_path
from hotspare.stores.contract import Access, Store

if TYPE_CHECKING:
    from hotspare.bus.contract import Bus
    from hotspare.coordination.contract import Coordination

_MAKERS = "`hotspare run` and `hotspare publish` make it: is the name right?"


def existing_bus(stack: ExitStack, url: str) -> Bus:
    """Closed with `stack`. UsageError where it would be a file that does not exist."""
    from hotspare.bus.open import open_bus

    if not has_its_file(url):
        raise UsageError(f"no bus is at {url}", detail=f"there is no file {named_path(url)}", hint=_MAKERS)
    opened = open_bus(url)
    stack.callback(opened.close)
    return opened


def existing_coordination(stack: ExitStack, url: str, bus_url: str) -> Coordination:
    """Closed with `stack`. By its own URL, else beside an existing bus, where no engine may have been yet: then it is empty."""
    from hotspare.coordination.memory import MemoryCoordination
    from hotspare.coordination.open import default_coordination_url, open_coordination

    if url and not has_its_file(url):
        raise UsageError(f"no coordination is at {url}", detail=f"there is no file {named_path(url)}", hint="is the name right?")
    chosen = url or default_coordination_url(bus_url)
    if not has_its_file(chosen):
        return MemoryCoordination().client("nobody")
    opened = open_coordination(chosen)
    stack.callback(opened.close)
    return opened


def existing_store(stack: ExitStack, url: str, bus_url: str, access: Access = Access.LOOK) -> Store | None:
    """Closed with `stack`. None where no snapshot was ever written beside the bus, or where nothing says where they are."""
    from hotspare.stores.open import default_store_url, is_there, open_existing_store

    chosen = url or (default_store_url(bus_url) if bus_url else "")
    if not chosen or not (url or is_there(chosen)):
        return None
    opened = open_existing_store(chosen, access)
    stack.callback(opened.close)
    return opened


def existing_snapshots(stack: ExitStack, url: str, bus_url: str, coordination: Coordination) -> Store | None:
    """`existing_store`, where each group has the snapshots of the project that it runs now. None also where nothing says where they
    are and the bus has no place for them: all the rest of a group can be seen."""
    from functools import partial

    from hotspare.ha.effects.upgrading import place_of
    from hotspare.stores.open import store_beside
    from hotspare.stores.placed import PlacedStore

    store = existing_store(stack, url, bus_url) if url or store_beside(bus_url) else None
    return None if store is None else PlacedStore(store, partial(place_of, coordination))
