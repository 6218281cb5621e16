"""The trainer's side: outstanding requests, threads, deadlines, tokens, and servers that die and come back."""

# SPDX-License-Identifier: Apache-2.0
import os
import signal
import threading
import time
from dataclasses import replace

import pytest
import torch

from argosy.engine.errors import ConfigError, DeadlineError, ProgramError, RejectedError, RpcError
from argosy.engine.log import NOTICE
from argosy.engine.ps.rpc.client import Client, PendingReply
from argosy.engine.ps.rpc.server import Handler, Request
from tests.engine.ps.rpc import serving as servers
from tests.engine.ps.rpc.serving import QUICK, serving
from tests.ranks import ForkServer, free_endpoint


def test_many_requests_are_outstanding_at_two_servers() -> None:
    with (
        serving() as one,
        serving() as two,
        Client([one.endpoint, two.endpoint], "trainer 0", 0, QUICK) as client,
    ):
        pending = [client.start(i % 2, "echo", {"i": i}, [torch.full((50,), i)]) for i in range(400)]
        for i, reply in reversed(list(enumerate(pending))):
            answer = reply.wait()
            assert answer.meta == {"i": i}
            assert torch.equal(answer.tensors[0], torch.full((50,), i))
        assert one.counters()["requests"] == two.counters()["requests"] == {"echo": 200}


def test_large_tensors_arrive_whole_and_writable() -> None:
    with serving() as server, Client([server.endpoint], "trainer 0", 0, QUICK) as client:
        sent = [torch.rand(1 << 20) for _ in range(6)]
        pending = [client.start(0, "echo", {}, [tensor]) for tensor in sent]
        for tensor, reply in zip(sent, pending, strict=True):
            echoed = reply.wait().tensors[0]
            assert torch.equal(echoed, tensor)
            echoed.zero_()


def test_several_threads_use_one_client() -> None:
    wrong: list[object] = []

    def use(client: Client, number: int) -> None:
        for i in range(60):
            pending = [client.start(0, "echo", {"n": [number, i, j]}) for j in range(3)]
            wrong.extend(r for j, r in enumerate(pending) if r.wait().meta["n"] != [number, i, j])

    with serving() as server, Client([server.endpoint], "trainer 0", 0, QUICK) as client:
        threads = [threading.Thread(target=use, args=(client, number)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in threads)
        assert server.counters()["requests"] == {"echo": 6 * 60 * 3}
    assert wrong == []


def test_start_does_not_wait_for_a_thread_that_waits() -> None:
    deferred: list[Request] = []
    handlers = {"keep": Handler("io", deferred.append), **servers.ECHO}
    with serving(handlers) as server, Client([server.endpoint], "trainer 0", 0, QUICK) as client:
        slow = client.start(0, "keep")
        waiting = threading.Thread(target=slow.wait)
        waiting.start()
        time.sleep(0.1)
        took = []
        for _ in range(5):  # the best of several: others use this machine too
            start = time.monotonic()
            assert client.call(0, "echo").meta == {}
            took.append(time.monotonic() - start)
        assert min(took) < 0.4, took  # neither thread waited for the other's next poll
        deferred[0].reply()
        waiting.join(5)
        assert not waiting.is_alive()


def test_is_done_does_not_wait() -> None:
    deferred: list[Request] = []
    with (
        serving({"keep": Handler("io", deferred.append)}) as server,
        Client([server.endpoint], "trainer 0", 0, QUICK) as client,
    ):
        reply = client.start(0, "keep")
        while not deferred:
            assert not reply.is_done()
        deferred[0].reply({"a": 1})
        while not reply.is_done():
            time.sleep(0.001)
        assert reply.wait().meta == reply.wait().meta == {"a": 1}


def test_a_client_may_start_before_its_server() -> None:
    endpoint = free_endpoint()
    with Client([endpoint], "trainer 0", 0, QUICK) as client:
        reply = client.start(0, "echo", {"a": 1})
        time.sleep(0.3)
        with serving(endpoint=endpoint):
            assert reply.wait().meta == {"a": 1}


def test_a_waiting_client_logs_and_fails_at_the_deadline(caplog: pytest.LogCaptureFixture) -> None:
    endpoint = free_endpoint()
    settings = replace(QUICK, deadline_s=1.5, notice_s=0.4)
    start = time.monotonic()
    with Client([endpoint], "trainer 0", 0, settings) as client:
        with pytest.raises(DeadlineError) as caught:
            client.call(0, "push", what="push of w.block0")
        assert 1.4 < time.monotonic() - start < 4
    assert f"server {endpoint} has not replied for 1 s; retrying until 2 s (push of w.block0)" in caplog.text
    for part in (
        endpoint,
        "is not connected",
        "1.5 s",
        "'push of w.block0'",
        "serverlog",
        "FLAGS_rpc_deadline",
    ):
        assert part in str(caught.value)


def test_a_progress_message_is_logged_and_resets_the_deadline(
    caplog: pytest.LogCaptureFixture,
) -> None:
    deferred: list[Request] = []
    settings = replace(QUICK, deadline_s=2.0, notice_s=1.5)
    with (
        serving({"barrier": Handler("io", deferred.append)}, settings) as server,
        Client([server.endpoint], "trainer 0", 0, settings) as client,
        caplog.at_level(NOTICE, "argosy"),
    ):
        reply = client.start(0, "barrier")

        def report() -> None:
            while not deferred:
                time.sleep(0.01)
            for _ in range(8):
                time.sleep(0.3)
                deferred[0].progress("waits for trainers 1, 3 for 12 s")
            deferred[0].reply({"after": 2.4})

        thread = threading.Thread(target=report)
        thread.start()
        assert reply.wait("step 4").meta == {"after": 2.4}
        thread.join()
    assert f"server {server.endpoint} waits for trainers 1, 3 for 12 s (step 4)" in caplog.text
    assert "has not replied" not in caplog.text


def test_a_reply_that_is_lost_after_a_long_wait_is_queried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queries of `retry_times` are for the time after the last progress message."""
    deferred: list[Request] = []
    settings = replace(QUICK, deadline_s=3.0, retry_times=2)
    with (
        serving({"barrier": Handler("io", deferred.append)}, settings) as server,
        Client([server.endpoint], "trainer 0", 0, settings) as client,
    ):
        reply = client.start(0, "barrier")
        waiting = threading.Thread(target=reply.wait)
        waiting.start()
        for _ in range(12):  # longer than both queries: 0.1 s and 0.2 s
            time.sleep(0.1)
            for request in deferred[:1]:
                request.progress("waits for trainer 1")
        with monkeypatch.context() as lossy:
            lossy.setattr(server._socket, "send", lambda *_: None)
            deferred[0].reply({"step": 4})
        waiting.join(10)
        assert reply.wait().meta == {"step": 4}


def test_a_killed_server_that_comes_back_is_waited_for() -> None:
    endpoint = free_endpoint()
    server = servers.process(endpoint)
    try:
        with Client([endpoint], "trainer 0", 0, QUICK) as client:
            assert client.call(0, "echo", {"a": 1}).meta == {"a": 1}
            first = client._links[0].incarnation
            os.kill(server.pid, signal.SIGSTOP)  # what is sent now is not answered before the kill
            pending: list[PendingReply] = [
                client.start(0, "echo", {"i": i}, [torch.full((9000,), i)]) for i in range(20)
            ]
            time.sleep(0.2)
            os.kill(server.pid, signal.SIGKILL)
            server.join()
            pending.append(client.start(0, "echo", {"i": 20}, [torch.full((9000,), 20)]))
            time.sleep(0.3)
            server = servers.process(endpoint)
            for i, reply in enumerate(pending):
                answer = reply.wait()
                assert answer.meta == {"i": i}
                assert torch.equal(answer.tensors[0], torch.full((9000,), i))
            assert client._links[0].incarnation not in ("", first)
    finally:
        server.kill()
        server.join()


def test_a_wrong_token_is_refused_at_once() -> None:
    right, wrong = replace(QUICK, token="right"), replace(QUICK, token="wrong")
    with serving(settings=right) as server:
        for other in (wrong, QUICK):
            start = time.monotonic()
            with Client([server.endpoint], "trainer 0", 0, other) as client:
                with pytest.raises(
                    RejectedError, match="rejected this process's token; all processes of a job need"
                ):
                    client.call(0, "echo")
                with pytest.raises(RejectedError, match="token"):
                    client.call(0, "echo")
            assert time.monotonic() - start < 5
        assert server.counters()["requests"] == {}
        assert server.counters()["rejected_connections"] >= 2
        with Client([server.endpoint], "trainer 0", 0, right) as client:
            assert client.call(0, "echo", {"a": 1}).meta == {"a": 1}


def test_curve_encrypts_for_those_with_the_token_and_refuses_the_others() -> None:
    right = replace(QUICK, token="right", encrypt=True)
    with serving(settings=right) as server:
        with Client([server.endpoint], "trainer 0", 0, right) as client:
            tensor = torch.rand(1 << 18)
            assert torch.equal(client.call(0, "echo", {}, [tensor]).tensors[0], tensor)
        for wrong in (replace(right, token="wrong"), replace(right, encrypt=False)):
            start = time.monotonic()
            with (
                Client([server.endpoint], "trainer 0", 0, wrong) as client,
                pytest.raises(RejectedError, match="same ARGOSY_JOB_TOKEN and the same ARGOSY_PS_ENCRYPT"),
            ):
                client.call(0, "echo")
            assert time.monotonic() - start < 8
        assert server.counters()["requests"] == {"echo": 1}


def test_a_forked_child_cannot_use_its_parents_client() -> None:
    with serving() as server, Client([server.endpoint], "trainer 0", 0, QUICK) as client:
        child = os.fork()
        if child == 0:
            try:
                client.call(0, "echo")
            except ProgramError as e:
                client.close()  # harmless
                os._exit(0 if "create a Client in each process" in str(e) else 2)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert client.call(0, "echo", {"a": 1}).meta == {"a": 1}


def test_close_fails_pending_requests_and_can_be_repeated() -> None:
    errors: list[Exception] = []

    def wait(reply: PendingReply) -> None:
        try:
            reply.wait()
        except RpcError as e:
            errors.append(e)

    with Client([free_endpoint()], "trainer 0", 0, QUICK) as client:
        threads = [threading.Thread(target=wait, args=(client.start(0, "echo"),)) for _ in range(2)]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
        client.close()
        for thread in threads:
            thread.join(5)
        assert ["closed before the reply arrived" in str(e) for e in errors] == [True, True]
        with pytest.raises(ProgramError, match="is closed; create a new one"):
            client.start(0, "echo")


def test_a_client_needs_servers_with_addresses() -> None:
    with pytest.raises(ConfigError, match="at least one endpoint"):
        Client([], "trainer 0", 0, QUICK)
    with pytest.raises(ConfigError, match="not an endpoint; use host:port"):
        Client(["127.0.0.1"], "trainer 0", 0, QUICK)
    with pytest.raises(ConfigError, match="a number from 0 on, or -1"):
        Client(["127.0.0.1:1"], "trainer 0", -5, QUICK)


def test_a_process_ends_without_closing_its_client(ranks: ForkServer) -> None:
    script = (
        "from argosy.engine.ps.rpc.client import Client\n"
        "from argosy.engine.ps.rpc.sockets import RpcSettings\n"
        f"client = Client(['{free_endpoint()}'], 'trainer 0', 0, RpcSettings())\n"
        "client.start(0, 'echo')\n"
    )
    done = ranks.python("-c", script, FULL_EXIT="1")
    assert (done.returncode, done.stderr) == (0, "")
