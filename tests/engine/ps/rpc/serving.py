"""Servers for the tests of the transport: in a thread of this process, or in a process of its own."""

# SPDX-License-Identifier: Apache-2.0
import multiprocessing
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.process import BaseProcess

from argosy.engine.ps.rpc.server import Handler, Request, RpcServer
from argosy.engine.ps.rpc.sockets import RpcSettings

QUICK = RpcSettings(heartbeat_s=0.1, retry_s=0.1, deadline_s=20.0)


def echo(request: Request) -> None:
    request.reply(request.meta, request.tensors)


ECHO = {"echo": Handler("send", echo), "echo_io": Handler("io", echo)}


def ignore(trainer: int) -> None:
    del trainer


@contextmanager
def serving(
    handlers: Mapping[str, Handler] | None = None,
    settings: RpcSettings = QUICK,
    on_unresponsive: Callable[[int], None] = ignore,
    endpoint: str = "127.0.0.1:0",
) -> Iterator[RpcServer]:
    """A server in a thread of this process."""
    server = RpcServer(endpoint, settings, ECHO if handlers is None else handlers, on_unresponsive)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(20)
        assert not thread.is_alive(), "serve() did not return"


def process(endpoint: str, settings: RpcSettings = QUICK) -> BaseProcess:
    """A server that echoes, in a process of its own, to be killed."""
    server = multiprocessing.get_context("fork").Process(
        target=_serve, args=(endpoint, settings), daemon=True
    )
    server.start()
    return server


def _serve(endpoint: str, settings: RpcSettings) -> None:
    RpcServer(endpoint, settings, ECHO, ignore).serve()
