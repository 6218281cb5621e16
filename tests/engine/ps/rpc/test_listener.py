"""The server's side: handlers, refusals, limits, silence, its end; and whatever bytes come, it goes on serving."""

# SPDX-License-Identifier: Apache-2.0
import os
import random
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import zmq

from argosy.engine.errors import ConfigError, DataError, DeadlineError, ProgramError, RefusedError
from argosy.engine.ps.rpc import address, security, wire
from argosy.engine.ps.rpc.client import Client
from argosy.engine.ps.rpc.listener import Handler, Listener, Request
from argosy.engine.ps.rpc.settings import Settings
from tests.engine.ps.rpc.serving import ECHO, QUICK, ignore, serving


def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Wait for something that must come."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def test_requests_run_in_their_pool_and_at_most_so_many_at_once() -> None:
    names: set[str] = set()
    gate = threading.Barrier(2)

    def note(request: Request) -> None:
        names.add(threading.current_thread().name)
        gate.wait(10)
        request.answer()

    settings = replace(QUICK, get_threads=2)
    with (
        serving({"get": Handler("get", note)}, settings) as listener,
        Client([listener.endpoint], "trainer 0", 0, settings) as client,
    ):
        for reply in [client.start(0, "get") for _ in range(6)]:
            reply.wait()
    assert names == {"ps-get-0", "ps-get-1"}


def test_what_a_handler_raises_is_the_refusal(caplog: pytest.LogCaptureFixture) -> None:
    def ours(_: Request) -> None:
        raise DataError("3 rows for 4 ids; send as many")

    def theirs(_: Request) -> None:
        raise KeyError("w")

    with (
        serving({"ours": Handler("send", ours), "theirs": Handler("io", theirs), **ECHO}) as listener,
        Client([listener.endpoint], "trainer 0", 0, QUICK) as client,
    ):
        with pytest.raises(RefusedError, match="^3 rows for 4 ids; send as many$"):
            client.call(0, "ours")
        with pytest.raises(RefusedError, match="KeyError: 'w'"):
            client.call(0, "theirs")
        with pytest.raises(RefusedError, match="no kind of request 'other'; there are ours, theirs, echo"):
            client.call(0, "other")
        assert client.call(0, "echo", {"a": 1}).meta == {"a": 1}
        assert listener.counters()["refused"] == 3
    assert "theirs of trainer 0 failed" in caplog.text
    assert "Traceback" in caplog.text


def test_a_request_is_answered_once() -> None:
    errors: list[Exception] = []

    def twice(request: Request) -> None:
        request.answer({"n": 1})
        request.tell("too late, and no harm done")
        try:
            request.answer({"n": 2})
        except ProgramError as e:
            errors.append(e)

    with (
        serving({"twice": Handler("io", twice)}) as listener,
        Client([listener.endpoint], "trainer 0", 0, QUICK) as client,
    ):
        assert client.call(0, "twice").meta == {"n": 1}
    assert "answered twice" in str(errors[0])


def test_an_answer_that_cannot_be_sent_is_a_refusal() -> None:
    large = replace(QUICK, max_message_mb=1)
    handlers = {"get": Handler("get", lambda request: request.answer({}, [torch.zeros(1 << 19)]))}
    with (
        serving(handlers, large) as listener,
        Client([listener.endpoint], "trainer 0", 0, large) as client,
        pytest.raises(RefusedError, match="raise ARGOSY_PS_MAX_MESSAGE_MB"),
    ):
        client.call(0, "get")


def test_counters_tell_what_has_happened() -> None:
    with serving() as listener, Client([listener.endpoint], "trainer 0", 0, QUICK) as client:
        for _ in range(3):
            client.call(0, "echo", {}, [torch.zeros(1000)])
        client.call(0, "echo_io")
        found = listener.counters()
        assert found["requests"] == {"echo": 3, "echo_io": 1}
        assert 12_000 < found["bytes_in"] < 20_000
        assert 12_000 < found["bytes_out"] < 20_000
        assert (found["repeated"], found["refused"], found["bad_frames"], found["refused_connections"]) == (
            0,
        ) * 4
        until(lambda: client.health()[0].counters.get("bytes_in", 0) > 12_000)
        assert client.health()[0].life == listener.life


def dealer(
    context: "zmq.Context[zmq.Socket[bytes]]", endpoint: str, settings: Settings
) -> "zmq.Socket[bytes]":
    made = context.socket(zmq.DEALER)
    made.linger = 1000
    security.guard_client(made, settings)
    address.connect(made, endpoint)
    return made


def test_random_bytes_on_the_port_do_not_end_the_server() -> None:
    draw = random.Random(0)
    with serving() as listener, Client([listener.endpoint], "trainer 0", 0, QUICK) as client:
        for _ in range(50):
            with socket.create_connection(address.split(listener.endpoint)) as wire_:
                start = draw.choice([b"", b"\xff\0\0\0\0\0\0\0\1\x7f", b"GET / HTTP/1.1\r\n\r\n"])
                wire_.sendall(start + draw.randbytes(draw.randrange(500)))
        assert client.call(0, "echo", {"a": 1}).meta == {"a": 1}
        until(lambda: listener.counters()["refused_connections"] > 0)


def test_random_frames_with_the_token_are_counted_and_logged_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    draw = random.Random(0)
    good = wire.encode(wire.Header(1, "echo", 1, "ab"), [torch.arange(3)])
    with (
        serving() as listener,
        zmq.Context() as context,
        dealer(context, listener.endpoint, QUICK) as strange,
        Client([listener.endpoint], "trainer 0", 0, QUICK) as client,
    ):
        for _ in range(150):
            strange.send_multipart([draw.randbytes(draw.randrange(100)) for _ in range(draw.randrange(1, 4))])
        strange.send_multipart(good[:1])  # the header alone: its tensor is missing
        until(lambda: listener.counters()["bad_frames"] == 151)
        assert client.call(0, "echo", {"a": 1}).meta == {"a": 1}
        refusal = wire.decode(strange.recv_multipart(), wire.Limits()).header
        assert (refusal.kind, refusal.id) == ("refuse", 1)
    assert caplog.text.count("that makes no sense") == 2
    assert caplog.text.count(f"{listener.endpoint}: refused 0 connections and 151 messages") == 1


def test_a_message_over_the_limit_ends_its_connection_only() -> None:
    small = replace(QUICK, max_message_mb=1)
    with (
        serving(settings=small) as listener,
        zmq.Context() as context,
        dealer(context, listener.endpoint, small) as strange,
        Client([listener.endpoint], "trainer 0", 0, small) as client,
    ):
        strange.send_multipart([b"x", bytes(3 << 20)])
        with pytest.raises(ConfigError, match="at most 1 MB are allowed"):
            client.start(0, "echo", {}, [torch.zeros(1 << 20)])
        assert client.call(0, "echo", {"a": 1}).meta == {"a": 1}
        assert listener.counters()["bytes_in"] < 1 << 20


def test_a_silent_trainer_is_told_of_once_and_again_after_it_came_back() -> None:
    settings = replace(QUICK, silent_s=0.5)
    silent: list[int] = []
    with (
        serving(settings=settings, on_silent=silent.append) as listener,
        Client([listener.endpoint], "trainer 0", 0, settings),
        Client([listener.endpoint], "a server", -1, settings),
    ):
        with Client([listener.endpoint], "trainer 1", 1, settings):
            until(lambda: listener.alive().keys() == {0, 1})
            time.sleep(0.8)
            assert silent == []
        until(lambda: silent == [1])
        time.sleep(0.8)
        assert silent == [1]
        assert listener.alive()[0] < 0.5 < listener.alive()[1]
        with Client([listener.endpoint], "trainer 1", 1, settings):
            until(lambda: listener.alive()[1] < 0.5)
        until(lambda: silent == [1, 1])


def test_a_failing_on_silent_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    settings = replace(QUICK, silent_s=0.2)

    def fail(trainer: int) -> None:
        raise ValueError(trainer)

    with serving(settings=settings, on_silent=fail) as listener:
        with Client([listener.endpoint], "trainer 5", 5, settings):
            until(lambda: 5 in listener.alive())
        until(lambda: "trainer 5 is silent failed" in caplog.text)


def test_stop_lets_what_is_queued_finish_and_refuses_what_waits_for_others() -> None:
    begun = threading.Event()
    kept: list[Request] = []

    def slow(request: Request) -> None:
        begun.set()
        time.sleep(0.2)
        request.answer({"done": True})

    settings = replace(QUICK, send_threads=1)
    with (
        serving({"slow": Handler("send", slow), "wait": Handler("io", kept.append)}, settings) as listener,
        Client([listener.endpoint], "trainer 0", 0, settings) as client,
    ):
        waits = client.start(0, "wait")
        replies = [client.start(0, "slow") for _ in range(3)]
        begun.wait(10)
        until(lambda: listener.counters()["requests"] == {"wait": 1, "slow": 3})
        listener.stop()
        assert listener.is_stopped
        assert all(reply.wait().meta["done"] for reply in replies)
        with pytest.raises(RefusedError, match="has ended before it could answer"):
            waits.wait()
    kept[0].tell("nobody hears this")


def test_a_stopped_server_leaves_no_thread_and_no_descriptor() -> None:
    with serving() as listener, Client([listener.endpoint], "trainer 0", 0, QUICK) as client:
        client.call(0, "echo", {}, [torch.zeros(1 << 16)])  # starts pyzmq's own thread, which stays
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with serving() as listener, Client([listener.endpoint], "trainer 0", 0, QUICK) as client:
            client.call(0, "echo", {}, [torch.zeros(1 << 16)])
    assert threading.active_count() == threads
    until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors)


def test_a_server_that_never_served_can_be_stopped() -> None:
    listener = Listener("127.0.0.1:0", QUICK, ECHO, ignore)
    listener.stop()
    listener.stop()
    Listener(listener.endpoint, QUICK, ECHO, ignore).stop()  # the port is free again


def test_without_a_token_only_loopback_is_allowed() -> None:
    with pytest.raises(ConfigError, match="give all processes the same ARGOSY_JOB_TOKEN"):
        Listener("0.0.0.0:0", QUICK, {}, ignore)
    Listener("localhost:0", QUICK, {}, ignore).stop()
    Listener("0.0.0.0:0", replace(QUICK, token="secret"), {}, ignore).stop()


def test_addresses_that_make_no_sense_are_refused() -> None:
    for endpoint in ("127.0.0.1", ":6174", "127.0.0.1:x", "127.0.0.1:99999"):
        with pytest.raises(ConfigError, match="no endpoint; use host:port"):
            Listener(endpoint, QUICK, {}, ignore)
    with pytest.raises(ConfigError, match="no host 'no.such.host.invalid'"):
        Listener("no.such.host.invalid:0", QUICK, {}, ignore)
    with pytest.raises(ConfigError, match="use an address of this host"):
        Listener("192.0.2.1:0", replace(QUICK, token="secret"), {}, ignore)
    with pytest.raises(ConfigError, match="the transport has its own"):
        Listener("127.0.0.1:0", QUICK, {"again": ECHO["echo"]}, ignore)


def test_a_port_in_use_is_waited_for() -> None:
    first = Listener("127.0.0.1:0", QUICK, ECHO, ignore)
    timer = threading.Timer(0.5, first.stop)
    timer.start()
    Listener(first.endpoint, QUICK, ECHO, ignore).stop()
    timer.join()


def test_a_port_that_stays_in_use_is_an_error() -> None:
    with serving() as listener:
        start = time.monotonic()
        with pytest.raises(ConfigError, match="another process has had this port for 5 s; end it"):
            Listener(listener.endpoint, QUICK, ECHO, ignore)
        assert 5 <= time.monotonic() - start < 9


def test_a_handler_that_never_answers_runs_into_the_deadline() -> None:
    settings = replace(QUICK, deadline_s=0.5)
    with (
        serving({"never": Handler("io", lambda _: None)}, settings) as listener,
        Client([listener.endpoint], "trainer 0", 0, settings) as client,
        pytest.raises(DeadlineError),
    ):
        client.call(0, "never")
