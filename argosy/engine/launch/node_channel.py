"""Authenticated connections between launchers: lines of JSON, a heartbeat every second, run by a thread.

Both sides prove that they know the job's token, by HMAC over random numbers of both, before anything else is read.
"""

# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib
import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from argosy.engine.launch.node_messages import decode, encode

BEAT_S = 1.0
LOST_S = 10.0
"""A peer that sends nothing for this long is lost; a killed one is noticed at once, by the end of its connection."""
_HANDSHAKE_S = 10.0
_BEAT = {"type": "beat"}


class Rejected(Exception):
    """The other side does not know the token, or rejects this one; the message says why."""


class Peer:
    """A connection to the launcher of another node."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.node = 0

    @property
    def local_address(self) -> str:
        """This side's address of the connection: where the other one reaches this node."""
        return str(self._writer.get_extra_info("sockname")[0])

    @property
    def address(self) -> str:
        return str(self._writer.get_extra_info("peername")[0])

    def send(self, message: dict[str, Any]) -> None:
        """Queue a message; a lost connection is noticed by `receive`."""
        if not self._writer.is_closing():
            self._writer.write(encode(message))

    async def receive(self, timeout_s: float = LOST_S) -> dict[str, Any]:
        """The next message; raises ConnectionError if the peer is lost, or sends something else."""
        try:
            line = await asyncio.wait_for(self._reader.readline(), timeout_s)
            if not line.endswith(b"\n"):
                raise ConnectionError("its connection was closed")
            return decode(line)
        except TimeoutError as e:
            raise ConnectionError(f"it has sent nothing for {timeout_s:g} s") from e
        except (ValueError, asyncio.LimitOverrunError) as e:
            raise ConnectionError(f"it sent something that is no message: {e!s:.100}") from e
        except OSError as e:
            raise ConnectionError(f"its connection is broken: {e.strerror or e}") from e

    async def close(self) -> None:
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            await asyncio.wait_for(self._writer.drain(), 1.0)
        self._writer.close()

    async def accept(self, token: str, check: Callable[[int], str]) -> None:
        """The side that listens: sets `node`; raises Rejected. `check(node)` returns why a node may not join, or ''."""
        challenge = secrets.token_hex(16)
        self.send({"challenge": challenge})
        hello = await self.receive(_HANDSHAKE_S)
        node, theirs = hello.get("node"), hello.get("challenge")
        problem = "it sent no hello"
        if isinstance(node, int) and isinstance(theirs, str):
            mac = _mac(token, f"node {node}", challenge, theirs)
            is_known = hmac.compare_digest(mac, str(hello.get("mac")))
            problem = check(node) if is_known else "its ARGOSY_JOB_TOKEN differs from that of node 0"
        if problem:
            self.send({"rejected": problem})
            await self.close()
            raise Rejected(problem)
        self.node = int(str(node))
        self.send({"mac": _mac(token, "node 0", str(theirs), challenge)})

    async def join(self, token: str, node: int) -> None:
        """The side that connects; raises Rejected."""
        challenge = str((await self.receive(_HANDSHAKE_S)).get("challenge"))
        ours = secrets.token_hex(16)
        mac = _mac(token, f"node {node}", challenge, ours)
        self.send({"node": node, "challenge": ours, "mac": mac})
        reply = await self.receive(_HANDSHAKE_S)
        if problem := reply.get("rejected"):
            raise Rejected(str(problem))
        if not hmac.compare_digest(_mac(token, "node 0", ours, challenge), str(reply.get("mac"))):
            raise Rejected("node 0 does not know the ARGOSY_JOB_TOKEN of this node")

    async def beat(self) -> None:
        """Send heartbeats until cancelled."""
        while True:
            self.send(_BEAT)
            await asyncio.sleep(BEAT_S)


def _mac(token: str, who: str, first: str, second: str) -> str:
    return hmac.new(token.encode(), f"{who} {first} {second}".encode(), hashlib.sha256).hexdigest()


class LoopThread:
    """An event loop in a daemon thread; the launcher's thread hands it work."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="node-channel", daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine, without waiting for it."""
        asyncio.run_coroutine_threadsafe(work, self.loop)

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Call a function in the loop's thread, without waiting for it."""
        self.loop.call_soon_threadsafe(function, *args)

    def wait(self, work: Coroutine[Any, Any, None], timeout_s: float) -> None:
        """Run a coroutine and wait for it; TimeoutError after the timeout."""
        asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout_s)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(1.0)
