"""Each request is run once, whatever happens to messages and connections on the way."""

# SPDX-License-Identifier: Apache-2.0
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
import zmq

from argosy.engine.ps.rpc import wire
from argosy.engine.ps.rpc.client import Client
from argosy.engine.ps.rpc.server import DedupTable, Handler, Request, RpcServer
from tests.engine.ps.rpc.proxy import Cutter, Mistreater
from tests.engine.ps.rpc.serving import QUICK, serving
from tests.engine.ps.rpc.test_server import dealer, until

SETTINGS = replace(QUICK, retry_s=0.05, retry_times=8, heartbeat_s=0.05)


class Counting:
    """A handler that counts how often each request runs."""

    def __init__(self) -> None:
        self.runs: Counter[int] = Counter()
        self._lock = threading.Lock()

    def __call__(self, request: Request) -> None:
        with self._lock:
            self.runs[request.meta["i"]] += 1
        time.sleep(0.001)
        request.reply({"i": request.meta["i"]}, request.tensors)


@pytest.fixture
def counting() -> Counting:
    return Counting()


@pytest.fixture
def server(counting: Counting) -> Iterator[RpcServer]:
    handlers = {"push": Handler("send", counting), "pull": Handler("get", counting, repeatable=True)}
    with serving(handlers, SETTINGS) as made:
        yield made


def push(client: Client, numbers: range) -> None:
    """Some small requests and some large ones; each answer must be its own."""
    size = {i: 5 if i % 4 else 50_000 for i in numbers}
    pending = [client.start(0, "push", {"i": i}, [torch.full((size[i],), i)]) for i in numbers]
    for i, reply in zip(numbers, pending, strict=True):
        answer = reply.wait(f"push {i}")
        assert answer.meta == {"i": i}
        assert torch.equal(answer.tensors[0], torch.full((size[i],), i))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_dropped_repeated_and_delayed_messages_change_nothing(
    server: RpcServer, counting: Counting, seed: int
) -> None:
    proxy = Mistreater(server.endpoint, SETTINGS, seed, share=0.08)
    try:
        with Client([proxy.endpoint], "trainer 0", 0, SETTINGS) as client:
            for first in range(0, 160, 40):
                push(client, range(first, first + 40))
    finally:
        proxy.close()
    assert min(proxy.dropped, proxy.repeated, proxy.delayed) > 10
    assert counting.runs == Counter(range(160))
    assert server.counters()["repeated"] > 0


def test_cut_connections_change_nothing(server: RpcServer, counting: Counting) -> None:
    cutter, is_over = Cutter(server.endpoint), threading.Event()

    def cut() -> None:
        while not is_over.wait(0.15):
            cutter.cut()

    thread = threading.Thread(target=cut)
    try:
        with Client([cutter.endpoint], "trainer 0", 0, SETTINGS) as client:
            client.call(0, "push", {"i": -1})
            thread.start()
            for first in range(0, 400, 40):
                push(client, range(first, first + 40))
            is_over.set()
    finally:
        is_over.set()
        thread.join()
        cutter.close()
    assert cutter.cuts > 3
    assert counting.runs == Counter(range(-1, 400))


def heard(socket: "zmq.Socket[bytes]", kind: str = "reply") -> wire.WireMessage:
    assert socket.poll(5000), "no answer"
    message = wire.decode(socket.recv_multipart(), wire.Limits())
    assert message.header.kind == kind
    return message


def asked(id_: int, kind: str = "push", acked_below: int = 0) -> wire.Frames:
    return wire.encode(
        wire.Header(wire.VERSION, kind, id_, "ab", acked_below=acked_below, meta={"i": id_}), []
    )


def test_a_duplicate_request_gets_its_reply_on_the_connection_that_repeats_it(
    server: RpcServer, counting: Counting
) -> None:
    with zmq.Context() as context:
        with dealer(context, server.endpoint, SETTINGS) as first:
            first.send_multipart(asked(1))
            heard(first)
        with dealer(context, server.endpoint, SETTINGS) as second:
            second.send_multipart(asked(1))
            assert heard(second).header.meta == {"i": 1}
            second.send_multipart(asked(1, "query"))
            assert heard(second).header.meta == {"i": 1}
            second.send_multipart(asked(2, "query"))
            assert heard(second, "not_found").header.id == 2
    assert counting.runs == {1: 1}
    assert server.counters()["repeated"] == 2


def test_replies_are_removed_once_they_are_acknowledged(server: RpcServer, counting: Counting) -> None:
    with zmq.Context() as context, dealer(context, server.endpoint, SETTINGS) as socket:
        for i in (1, 2, 3):
            socket.send_multipart(asked(i))
            heard(socket)
        assert list(server._dedup.clients["ab"].entries) == [1, 2, 3]
        socket.send_multipart(asked(4, acked_below=3))
        heard(socket)
        assert list(server._dedup.clients["ab"].entries) == [3, 4]
        socket.send_multipart(asked(1))  # a copy that was on its way for long
        assert not socket.poll(200)
    assert counting.runs == {1: 1, 2: 1, 3: 1, 4: 1}


def test_a_repeatable_request_runs_again_instead_of_being_kept(server: RpcServer, counting: Counting) -> None:
    with zmq.Context() as context, dealer(context, server.endpoint, SETTINGS) as socket:
        socket.send_multipart(asked(1, "pull"))
        heard(socket)
        assert server._dedup.clients["ab"].entries[1].reply is None
        socket.send_multipart(asked(1, "query"))
        heard(socket, "not_found")
        socket.send_multipart(asked(1, "pull"))
        heard(socket)
    assert counting.runs == {1: 2}


def test_a_heartbeat_settles_what_an_idle_client_has_got(server: RpcServer) -> None:
    with Client([server.endpoint], "trainer 0", 0, SETTINGS) as client:
        client.call(0, "push", {"i": 1}, [torch.zeros(100_000)])
        until(lambda: not server._dedup.clients[client.incarnation].entries)


def test_expired_clients_are_evicted_and_a_stopped_server_extends_deadlines() -> None:
    dedup = DedupTable()
    old, new = (
        wire.Header(wire.VERSION, "push", 1, incarnation, trainer=n)
        for n, incarnation in enumerate(("old", "new"))
    )
    dedup.note_message(old, now=0.0)
    dedup.note_message(new, now=50.0)
    dedup.extend_deadlines(10.0)
    assert dedup.newly_unresponsive(65.0, timeout_s=20.0) == [0]
    assert dedup.newly_unresponsive(66.0, timeout_s=20.0) == []
    dedup.evict(65.0, timeout_s=20.0)
    assert list(dedup.clients) == ["new"]
