"""The server's side: handlers, rejections, limits, timeouts, shutdown; no bytes from a peer stop it."""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import random
import resource
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import zmq

from argosy.engine.errors import ConfigError, DataError, DeadlineError, ProgramError, RejectedError
from argosy.engine.net import Endpoint
from argosy.engine.ps.rpc import sockets, wire
from argosy.engine.ps.rpc.client import Client
from argosy.engine.ps.rpc.server import Handler, Request, RpcServer
from argosy.engine.ps.rpc.sockets import RpcSettings
from tests.engine.ps.rpc.serving import ECHO, QUICK, ignore, serving
from tests.ranks import ForkServer


def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Wait for something that must come."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def test_requests_run_in_their_pool_and_at_most_so_many_at_once() -> None:
    names: set[str] = set()
    both_run = threading.Barrier(2)

    def note(request: Request) -> None:
        names.add(threading.current_thread().name)
        both_run.wait(10)
        request.reply()

    settings = replace(QUICK, get_threads=2)
    with (
        serving({"get": Handler("get", note)}, settings) as server,
        Client([server.endpoint], "trainer 0", 0, settings) as client,
    ):
        for reply in [client.start(0, "get") for _ in range(6)]:
            reply.wait()
    assert names == {"ps-get-0", "ps-get-1"}


def test_an_exception_of_a_handler_rejects_the_request(caplog: pytest.LogCaptureFixture) -> None:
    def ours(_: Request) -> None:
        raise DataError("3 rows for 4 ids; send as many")

    def theirs(_: Request) -> None:
        raise KeyError("w")

    with (
        serving({"ours": Handler("send", ours), "theirs": Handler("io", theirs), **ECHO}) as server,
        Client([server.endpoint], "trainer 0", 0, QUICK) as client,
    ):
        with pytest.raises(RejectedError, match="^3 rows for 4 ids; send as many$"):
            client.call(0, "ours")
        with pytest.raises(RejectedError, match="KeyError: 'w'"):
            client.call(0, "theirs")
        with pytest.raises(RejectedError, match="unknown request kind 'other' .known: ours, theirs, echo"):
            client.call(0, "other")
        assert client.call(0, "echo", {"a": 1}).meta == {"a": 1}
        assert server.counters()["rejected"] == 3
    assert "theirs of trainer 0 failed" in caplog.text
    assert "Traceback" in caplog.text


def test_a_request_gets_one_reply() -> None:
    errors: list[Exception] = []

    def twice(request: Request) -> None:
        request.reply({"n": 1})
        request.progress("too late, and no harm done")
        try:
            request.reply({"n": 2})
        except ProgramError as e:
            errors.append(e)

    with (
        serving({"twice": Handler("io", twice)}) as server,
        Client([server.endpoint], "trainer 0", 0, QUICK) as client,
    ):
        assert client.call(0, "twice").meta == {"n": 1}
    assert "replied to twice" in str(errors[0])


def test_a_reply_that_cannot_be_sent_is_a_rejection() -> None:
    large = replace(QUICK, max_message_mb=1)
    handlers = {"get": Handler("get", lambda request: request.reply({}, [torch.zeros(1 << 19)]))}
    with (
        serving(handlers, large) as server,
        Client([server.endpoint], "trainer 0", 0, large) as client,
        pytest.raises(RejectedError, match="raise ARGOSY_PS_MAX_MESSAGE_MB"),
    ):
        client.call(0, "get")


def test_counters_tell_what_has_happened() -> None:
    with serving() as server, Client([server.endpoint], "trainer 0", 0, QUICK) as client:
        for _ in range(3):
            client.call(0, "echo", {}, [torch.zeros(1000)])
        client.call(0, "echo_io")
        counters = server.counters()
        assert counters["requests"] == {"echo": 3, "echo_io": 1}
        assert 12_000 < counters["bytes_in"] < 20_000
        assert 12_000 < counters["bytes_out"] < 20_000
        errors = ("repeated", "rejected", "malformed", "rejected_connections")
        assert [counters[name] for name in errors] == [0, 0, 0, 0]
        assert client._links[0].incarnation == server.incarnation


def dealer(
    context: "zmq.Context[zmq.Socket[bytes]]", endpoint: str, settings: RpcSettings
) -> "zmq.Socket[bytes]":
    dealer = context.socket(zmq.DEALER)
    dealer.linger = 1000
    sockets.guard_client(dealer, settings)
    sockets.connect(dealer, endpoint)
    return dealer


def test_random_bytes_on_the_port_do_not_end_the_server() -> None:
    draw = random.Random(0)
    with serving() as server, Client([server.endpoint], "trainer 0", 0, QUICK) as client:
        for _ in range(50):
            with socket.create_connection(Endpoint.parse(server.endpoint)) as wire_:
                start = draw.choice([b"", b"\xff\0\0\0\0\0\0\0\1\x7f", b"GET / HTTP/1.1\r\n\r\n"])
                wire_.sendall(start + draw.randbytes(draw.randrange(500)))
        assert client.call(0, "echo", {"a": 1}).meta == {"a": 1}
        until(lambda: server.counters()["rejected_connections"] > 0)


def test_random_frames_with_the_token_are_counted_and_logged_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    draw = random.Random(0)
    good = wire.encode(wire.Header(1, "echo", 1, "ab"), [torch.arange(3)])
    with (
        serving() as server,
        zmq.Context() as context,
        dealer(context, server.endpoint, QUICK) as strange,
        Client([server.endpoint], "trainer 0", 0, QUICK) as client,
    ):
        for _ in range(150):
            strange.send_multipart([draw.randbytes(draw.randrange(100)) for _ in range(draw.randrange(1, 4))])
        strange.send_multipart(good[:1])  # the header alone: its tensor is missing
        until(lambda: server.counters()["malformed"] == 151)
        assert client.call(0, "echo", {"a": 1}).meta == {"a": 1}
        refusal = wire.decode(strange.recv_multipart(), wire.Limits()).header
        assert (refusal.kind, refusal.id) == ("reject", 1)
    assert caplog.text.count("rejected malformed message") == 2
    assert caplog.text.count(f"{server.endpoint}: rejected 0 connections and 151 malformed messages") == 1


def test_a_message_over_the_limit_ends_its_connection_only() -> None:
    small = replace(QUICK, max_message_mb=1)
    with (
        serving(settings=small) as server,
        zmq.Context() as context,
        dealer(context, server.endpoint, small) as strange,
        Client([server.endpoint], "trainer 0", 0, small) as client,
    ):
        strange.send_multipart([b"x", bytes(3 << 20)])
        with pytest.raises(ConfigError, match="the limit is 1 MB"):
            client.start(0, "echo", {}, [torch.zeros(1 << 20)])
        assert client.call(0, "echo", {"a": 1}).meta == {"a": 1}
        assert server.counters()["bytes_in"] < 1 << 20


GREETING = b"\xff" + bytes(7) + b"\x01\x7f\x03\x00" + b"PLAIN".ljust(20, b"\0") + bytes(32)
"""What begins a connection of ZeroMQ, with its mechanism."""


def test_a_stranger_cannot_make_a_server_allocate_before_it_has_shown_its_token() -> None:
    with serving() as server:
        host, port = Endpoint.parse(server.endpoint)
        for kind in (b"\x06", b"\x02"):  # a long command, a long message
            with socket.create_connection((host, int(port)), timeout=20) as stranger:
                stranger.sendall(GREETING + kind + (300 << 20).to_bytes(8, "big"))
                while stranger.recv(4096):
                    pass  # the server's greeting, and then the end: it does not wait for 300 MB
        with Client([server.endpoint], "trainer 0", 0, QUICK) as client:
            large = torch.rand(3 << 18)
            assert torch.equal(client.call(0, "echo", {}, [large]).tensors[0], large)


def test_who_does_not_show_a_token_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "_HANDSHAKE_MS", 300)
    with serving() as server:
        host, port = Endpoint.parse(server.endpoint)
        with socket.create_connection((host, int(port)), timeout=20) as stranger:
            while stranger.recv(4096):
                pass


def is_flooded() -> None:
    """A server whose process may have few descriptors, and strangers that take as many as they get."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, 4096))
    with serving() as server:
        host, port = Endpoint.parse(server.endpoint)
        child = os.fork()
        if child == 0:  # the strangers' descriptors are not the server's
            resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
            strangers = [socket.create_connection((host, int(port)), timeout=20) for _ in range(300)]
            time.sleep(1.0)
            os._exit(len(strangers) == 0)
        until(lambda: server.counters()["rejected_connections"] > 50)
        until(lambda: can_open(40))  # ZeroMQ accepts all that come at once before the first are closed
        print("40 files", flush=True)
        os.waitpid(child, 0)


def can_open(count: int) -> bool:
    """Whether this process can open so many files, as a snapshot does."""
    with contextlib.ExitStack() as files:
        try:
            for _ in range(count):
                files.enter_context(open(os.devnull))
        except OSError:
            return False
    return True


def test_strangers_cannot_take_the_descriptors_that_a_server_needs_for_its_files(ranks: ForkServer) -> None:
    assert "40 files" in ranks.check(1, is_flooded)[0]


def test_an_unresponsive_trainer_is_reported_once_and_again_after_it_came_back() -> None:
    settings = replace(QUICK, heartbeat_timeout_s=1.0)
    silent: list[int] = []
    with (
        serving(settings=settings, on_unresponsive=silent.append) as server,
        Client([server.endpoint], "trainer 0", 0, settings),
        Client([server.endpoint], "a server", -1, settings),
    ):
        with Client([server.endpoint], "trainer 1", 1, settings):
            until(lambda: server.last_seen_s().keys() == {0, 1})
            time.sleep(1.3)
            assert silent == []
        until(lambda: silent == [1])
        time.sleep(1.3)
        assert silent == [1]
        assert server.last_seen_s()[0] < 1.0 < server.last_seen_s()[1]
        with Client([server.endpoint], "trainer 1", 1, settings):
            until(lambda: server.last_seen_s()[1] < 1.0)
        until(lambda: silent == [1, 1])


def test_a_failing_on_unresponsive_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    settings = replace(QUICK, heartbeat_timeout_s=0.2)

    def fail(trainer: int) -> None:
        raise ValueError(trainer)

    with serving(settings=settings, on_unresponsive=fail) as server:
        with Client([server.endpoint], "trainer 5", 5, settings):
            until(lambda: 5 in server.last_seen_s())
        until(lambda: "handling of unresponsive trainer 5 failed" in caplog.text)


def test_stop_runs_queued_requests_and_rejects_deferred_ones() -> None:
    begun = threading.Event()
    deferred: list[Request] = []

    def slow(request: Request) -> None:
        begun.set()
        time.sleep(0.2)
        request.reply({"done": True})

    settings = replace(QUICK, send_threads=1)
    with (
        serving({"slow": Handler("send", slow), "wait": Handler("io", deferred.append)}, settings) as server,
        Client([server.endpoint], "trainer 0", 0, settings) as client,
    ):
        waits = client.start(0, "wait")
        pending = [client.start(0, "slow") for _ in range(3)]
        begun.wait(10)
        until(lambda: server.counters()["requests"] == {"wait": 1, "slow": 3})
        server.stop()
        assert server.is_stopped
        assert all(reply.wait().meta["done"] for reply in pending)
        with pytest.raises(RejectedError, match="stopped before it could reply"):
            waits.wait()
    deferred[0].progress("not received")


def test_a_stopped_server_leaves_no_thread_and_no_descriptor() -> None:
    with serving() as server, Client([server.endpoint], "trainer 0", 0, QUICK) as client:
        client.call(0, "echo", {}, [torch.zeros(1 << 16)])  # starts pyzmq's own thread, which stays
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with serving() as server, Client([server.endpoint], "trainer 0", 0, QUICK) as client:
            client.call(0, "echo", {}, [torch.zeros(1 << 16)])
    assert threading.active_count() == threads
    until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors)


def test_a_server_that_never_served_can_be_stopped() -> None:
    server = RpcServer("127.0.0.1:0", QUICK, ECHO, ignore)
    server.stop()
    server.stop()
    RpcServer(server.endpoint, QUICK, ECHO, ignore).stop()  # the port is free again


def test_without_a_token_only_loopback_is_allowed() -> None:
    with pytest.raises(ConfigError, match="give all processes the same ARGOSY_JOB_TOKEN"):
        RpcServer("0.0.0.0:0", QUICK, {}, ignore)
    RpcServer("localhost:0", QUICK, {}, ignore).stop()
    RpcServer("0.0.0.0:0", replace(QUICK, token="secret"), {}, ignore).stop()


def test_malformed_addresses_are_rejected() -> None:
    for endpoint in ("127.0.0.1", ":6174", "127.0.0.1:x", "127.0.0.1:99999"):
        with pytest.raises(ConfigError, match="not an endpoint; use host:port"):
            RpcServer(endpoint, QUICK, {}, ignore)
    with pytest.raises(ConfigError, match="unknown host 'no.such.host.invalid'"):
        RpcServer("no.such.host.invalid:0", QUICK, {}, ignore)
    with pytest.raises(ConfigError, match="use an address of this host"):
        RpcServer("192.0.2.1:0", replace(QUICK, token="secret"), {}, ignore)
    with pytest.raises(ConfigError, match="reserved for the transport"):
        RpcServer("127.0.0.1:0", QUICK, {"query": ECHO["echo"]}, ignore)


def test_a_port_in_use_is_waited_for() -> None:
    first = RpcServer("127.0.0.1:0", QUICK, ECHO, ignore)
    timer = threading.Timer(0.5, first.stop)
    timer.start()
    RpcServer(first.endpoint, QUICK, ECHO, ignore).stop()
    timer.join()


def test_a_port_that_stays_in_use_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "_IN_USE_S", 0.5)
    with serving() as server:
        start = time.monotonic()
        with pytest.raises(ConfigError, match="another process has had this port for 0.5 s; end it"):
            RpcServer(server.endpoint, QUICK, ECHO, ignore)
        assert time.monotonic() - start >= 0.5


def test_a_handler_that_never_replies_runs_into_the_deadline() -> None:
    settings = replace(QUICK, deadline_s=0.5)
    with (
        serving({"never": Handler("io", lambda _: None)}, settings) as server,
        Client([server.endpoint], "trainer 0", 0, settings) as client,
        pytest.raises(DeadlineError),
    ):
        client.call(0, "never")
