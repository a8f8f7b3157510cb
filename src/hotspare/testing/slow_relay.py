"""A slow link: relays the bytes of connections with a delay. The packet filter of a host redirects them here
(`hosts.Network.slow_links`).

    python -m hotspare.testing.slow_relay PORT ADDRESS=DELAY_MS ...
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
from collections.abc import Mapping

from hotspare.testing.hosts import RELAY_MARK

_SO_ORIGINAL_DST = 80
"""The socket option with a redirected connection's original destination (linux/netfilter_ipv4.h)."""
_PIECE_BYTES = 1 << 16
_PIECES_MAX = 256
"""Limit on the pieces in transit in one direction of a connection; at the limit the sender waits, as for a full buffer."""


def _bound_for(connection: socket.socket) -> tuple[str, int]:
    port, address = struct.unpack_from("!2xH4s", connection.getsockopt(socket.SOL_IP, _SO_ORIGINAL_DST, 16))
    return socket.inet_ntoa(address), port


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    """Writes every piece that `reader` receives, and the end of the stream, to `writer`, `delay_s` after its arrival."""
    loop = asyncio.get_running_loop()
    under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_PIECES_MAX)

    async def deliver() -> None:
        while True:
            due, piece = await under_way.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if not piece:
                break
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    delivery = asyncio.create_task(deliver())
    try:
        while piece := await reader.read(_PIECE_BYTES):
            await under_way.put((loop.time() + delay_s, piece))
        await under_way.put((loop.time() + delay_s, b""))
        await delivery
    finally:
        delivery.cancel()


async def _relay(near: tuple[asyncio.StreamReader, asyncio.StreamWriter], delay_ms: Mapping[str, int]) -> None:
    connection = near[1].get_extra_info("socket")
    address, port = _bound_for(connection)
    delay_s = delay_ms.get(address, 0) / 1_000
    far_socket = socket.socket()
    far_socket.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, RELAY_MARK)
    far_socket.setblocking(False)  # noqa: FBT003 - the socket's own signature
    writers = [near[1]]
    try:
        await asyncio.sleep(delay_s)
        await asyncio.get_running_loop().sock_connect(far_socket, (address, port))
        far = await asyncio.open_connection(sock=far_socket)
        writers.append(far[1])
        await asyncio.gather(_pass_on(near[0], far[1], delay_s), _pass_on(far[0], near[1], delay_s))
    except OSError:
        far_socket.close()
    finally:
        for writer in writers:
            with contextlib.suppress(OSError):
                writer.transport.abort()


async def _serve(port: int, delay_ms: Mapping[str, int]) -> None:
    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _relay((reader, writer), delay_ms)

    server = await asyncio.start_server(accepted, "127.0.0.1", port)
    print("ready", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    _delay_ms = {address: int(delay) for address, _, delay in (argument.partition("=") for argument in sys.argv[2:])}
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(int(sys.argv[1]), _delay_ms))
