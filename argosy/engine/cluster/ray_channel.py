"""Messages between a rank and the supervising actor of its node: the function to run, metrics, the result.

    rank ── connect, {"kind": "metrics", "rank": 0} + payload ──▶ actor
         ◀────────────────── reply ──────────────────────────────

A Unix socket in the abstract namespace, so that no file is left behind if the actor is killed. Both sides prove that
they know the job's token (`multiprocessing.connection`). A message is in the actor's list before the rank continues.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import secrets
import threading
from collections.abc import Callable
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from argosy.engine import env
from argosy.engine.errors import ConfigError

VARIABLE = "ARGOSY_RAY_CHANNEL"
"""Set for the ranks of a job on Ray: the name of the socket."""
Receive = Callable[[dict[str, Any], bytes], bytes]


class RankChannel:
    """The actor's side: every message is passed to `receive`, whose result is the reply."""

    def __init__(self, token: str, receive: Receive) -> None:
        self.name = f"argosy-ray-{secrets.token_hex(8)}"
        self._receive = receive
        self._listener = Listener(f"\0{self.name}", "AF_UNIX", backlog=128, authkey=token.encode())
        threading.Thread(target=self._accept, name="rank-channel", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except (AuthenticationError, EOFError, ConnectionError):
                continue  # another process of this host, or a rank that was killed
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        with connection:
            try:
                header = json.loads(connection.recv_bytes())
                connection.send_bytes(self._receive(header, connection.recv_bytes()))
            except (EOFError, OSError):
                pass  # the rank was killed

    def close(self) -> None:
        self._listener.close()


def is_open() -> bool:
    """True on a rank of a job on Ray."""
    return VARIABLE in env.variables()


def send(kind: str, payload: bytes = b"") -> bytes:
    """On a rank: send a message to the actor of this node; returns the reply."""
    name = env.text(VARIABLE, "")
    header = {"kind": kind, "rank": env.launched().rank}
    try:
        with Client(f"\0{name}", "AF_UNIX", authkey=env.text("ARGOSY_JOB_TOKEN", "").encode()) as connection:
            connection.send_bytes(json.dumps(header).encode())
            connection.send_bytes(payload)
            return connection.recv_bytes()
    except (OSError, EOFError, AuthenticationError) as e:
        raise ConfigError(
            f"cannot send {kind} to the supervising actor of this node ({VARIABLE}={name}: {e}); "
            "start the job with fleetrun --on=ray or argosy.ray.run"
        ) from e
