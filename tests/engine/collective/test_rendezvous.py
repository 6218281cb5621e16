"""Rendezvous at rank 0's endpoint, and the errors when it fails."""

# SPDX-License-Identifier: Apache-2.0
import os
import resource
import socket
import threading
import time
from datetime import timedelta

import pytest
from torch._C._distributed_c10d import Store

from argosy.engine import process_effects
from argosy.engine.collective.identity import Identity
from argosy.engine.collective.rendezvous import allow_connections, open_store
from argosy.engine.errors import CollectiveError, ConfigError
from argosy.engine.net import is_local
from tests.ranks import free_endpoint


def rank(number: int, master: str, restart: int = 0, token: str = "") -> Identity:
    return Identity(rank=number, size=2, master=master, hosts_store=number == 0, restart=restart, token=token)


def test_both_ranks_see_one_store() -> None:
    master = free_endpoint()
    first = open_store(rank(0, master), 10)
    second = open_store(rank(1, master), 10)
    first.set("key", "value")
    assert second.get("key") == b"value"


def test_a_rank_that_starts_first_waits_for_rank_0() -> None:
    master = free_endpoint()
    stores: list[Store] = []
    waiting = threading.Thread(target=lambda: stores.append(open_store(rank(1, master), 20)))
    waiting.start()
    time.sleep(0.3)
    first = open_store(rank(0, master), 10)
    first.set("key", "value")
    waiting.join(timeout=20)
    assert stores[0].get("key") == b"value"


def test_an_unreachable_endpoint_is_reported_with_the_attempts() -> None:
    master = free_endpoint()
    began = time.monotonic()
    with pytest.raises(CollectiveError) as e:
        open_store(rank(1, master), 1.0)
    assert time.monotonic() - began < 5
    message = str(e.value)
    assert f"rank 0 at {master} is unreachable: " in message
    assert "attempts in 1 s, the last one: Connection refused; check that its process runs" in message


def test_a_port_in_use_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        master = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(
            ConfigError, match=f"rank 0 cannot listen on {master}: Address already in use; stop the"
        ):
            open_store(rank(0, master), 5)


def test_a_socket_that_accepts_connections_is_no_store_yet() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # as the launcher's, before rank 0 has come up
        master = f"127.0.0.1:{listener.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(CollectiveError) as e:
            open_store(rank(1, master), 1.0)
        assert time.monotonic() - began < 5
    assert f"rank 0 at {master} accepts connections, but has not opened the job's store within 1 s" in str(
        e.value
    )
    assert "it has not reached fleet.init, or another program listens there" in str(e.value)


def test_the_socket_of_the_launcher_is_used_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("ARGOSY_STORE_FD", str(os.dup(listener.fileno())))
        master = f"127.0.0.1:{listener.getsockname()[1]}"
    first = open_store(rank(0, master), 5)
    first.set("key", "value")
    monkeypatch.delenv("ARGOSY_STORE_FD")
    assert open_store(rank(1, master), 5).get("key") == b"value"


@pytest.mark.parametrize("other", [{"restart": 1}, {"token": "of another job"}])
def test_a_rank_of_another_incarnation_or_job_sees_no_keys(other: dict[str, object]) -> None:
    master = free_endpoint()
    first = open_store(rank(0, master), 5)
    stranger = open_store(rank(1, master, **other), 5)
    first.set("key", "value")
    assert not stranger.check(["key"])
    with pytest.raises(RuntimeError):
        stranger.wait(["key"], timedelta(milliseconds=50))


def test_the_limit_of_open_files_is_raised_for_the_connections_of_all_ranks() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
        allow_connections(20)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 300
        allow_connections(100)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 456
        process_effects.undo("open-files")
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 300
        if hard != resource.RLIM_INFINITY:
            with pytest.raises(ConfigError, match=f"open files there, and the limit is {hard}; raise it"):
                allow_connections(hard)
    finally:
        process_effects.undo("open-files")
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.skipif(not is_local("::1"), reason="this host has no IPv6")
def test_the_store_listens_on_an_ipv6_address() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
        master = f"[::1]:{listener.getsockname()[1]}"
    first, second = open_store(rank(0, master), 10), open_store(rank(1, master), 10)
    first.set("key", "value")
    assert second.get("key") == b"value"
