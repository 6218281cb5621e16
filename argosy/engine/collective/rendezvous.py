"""Rendezvous: a key-value store at rank 0's endpoint, which every rank connects to.

    rank 0   listens on exactly its endpoint's address ──▶ store
    others   retry until it accepts, and log what they try

The store is torch's TCPStore. It listens on the given address only. Keys are prefixed with the job's token and the
restart count, so that a rank of an earlier incarnation of the job, or of another job, sees none of them.
"""

# SPDX-License-Identifier: Apache-2.0
import os
import socket
import threading
import time
from datetime import timedelta

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from argosy.engine import env, open_files
from argosy.engine.collective.identity import Identity
from argosy.engine.errors import CollectiveError, ConfigError
from argosy.engine.log import logger
from argosy.engine.net import Endpoint, is_loopback

_WARN_AFTER_S = 10.0
_CONNECTIONS_PER_RANK = 2
"""One for requests, one for heartbeats."""
_BACKLOG = 1024
"""Connections of ranks that start at the same time; the kernel limits it to net.core.somaxconn."""


def open_store(identity: Identity, timeout_s: float) -> Store:
    """Connect to the job's store; rank 0 creates it unless the launcher has one."""
    host, port = Endpoint.parse(identity.master, "the address of the store")
    if identity.hosts_store:
        allow_connections(identity.size)
        is_single_host = identity.local_size == identity.size
        listener = _listener(host, port, is_single_host)
        store = _connect(host, port, timeout_s, listener)
        os.set_inheritable(listener, False)  # child processes of the script must not keep the port open
    else:
        _await_endpoint(host, port, timeout_s)
        store = _await_store(host, port, timeout_s)
    return PrefixStore(f"argosy/{identity.token}/{identity.restart}", store)


def allow_connections(num_ranks: int) -> None:
    """Raise the soft limit of open files if every rank could not connect; ConfigError if the hard limit is too low."""
    open_files.allow(_CONNECTIONS_PER_RANK * num_ranks, f"rank 0 hosts the job's store: {num_ranks} ranks")


def _connect(host: str, port: int, timeout_s: float, listener: int | None = None) -> TCPStore:
    return TCPStore(
        host,
        port,
        is_master=listener is not None,
        timeout=timedelta(seconds=timeout_s),
        wait_for_workers=False,
        master_listen_fd=listener,
    )


def _await_store(host: str, port: int, timeout_s: float) -> TCPStore:
    """Connect to rank 0's store.

    In a thread: the launcher's socket accepts connections long before rank 0 replies, and TCPStore waits for the
    reply without a timeout.
    """
    results: list[TCPStore | RuntimeError] = []

    def connect() -> None:
        try:
            results.append(_connect(host, port, timeout_s))
        except RuntimeError as e:
            results.append(e)

    thread = threading.Thread(target=connect, name="argosy-rendezvous", daemon=True)
    began = time.monotonic()
    thread.start()
    while not results and (left_s := timeout_s - (time.monotonic() - began)) > 0:
        thread.join(min(left_s, _WARN_AFTER_S))
        if not results and left_s > _WARN_AFTER_S:
            logger.warning("rank 0 at %s has not opened the job's store yet", Endpoint(host, port))
    if results and isinstance(results[0], TCPStore):
        return results[0]
    reason = str(results[0]).splitlines()[0] if results else "no reply"
    raise CollectiveError(
        f"rank 0 at {Endpoint(host, port)} accepts connections, but has not opened the job's store within "
        f"{timeout_s:g} s ({reason}); it has not reached fleet.init, or another program listens there; see its log. "
        "ARGOSY_CONNECT_TIMEOUT_S gives it more time",
        *((0,), "late"),
    )


def _listener(host: str, port: int, is_single_host: bool) -> int:
    """The descriptor of a socket that listens on this address: the launcher's, or a new one."""
    if descriptor := env.text("ARGOSY_STORE_FD", ""):
        return int(descriptor)
    try:
        family, _, _, _, (address, *_) = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
        # Debian resolves a host's own name to 127.0.1.1, which other hosts cannot reach: listen on all interfaces.
        listen_on_all = not is_single_host and is_loopback(str(address))
        bind_to = ("" if listen_on_all else str(address), port)
        return socket.create_server(bind_to, family=family, backlog=_BACKLOG).detach()
    except OSError as e:
        raise ConfigError(
            f"rank 0 cannot listen on {Endpoint(host, port)}: {os.strerror(e.errno or 0)}; stop the process that "
            "uses the port, or choose another (MASTER_PORT, or fleetrun's --start_port)"
        ) from e


def _await_endpoint(host: str, port: int, timeout_s: float) -> None:
    """Retry until rank 0's endpoint accepts a connection."""
    began, attempts, warned_at = time.monotonic(), 0, time.monotonic()
    while True:
        attempts += 1
        try:
            socket.create_connection((host, port), timeout=min(5.0, timeout_s)).close()
            return
        except OSError as e:
            reason = e.strerror or str(e)
        waited_s = time.monotonic() - began
        if waited_s > timeout_s:
            raise CollectiveError(
                f"rank 0 at {Endpoint(host, port)} is unreachable: {attempts} attempts in {waited_s:.0f} s, the last "
                f"one: {reason}; check that its process runs, that the port is open between the hosts, and that every "
                "host was given the same list of addresses",
                *((0,), "late"),
            )
        if time.monotonic() - warned_at > _WARN_AFTER_S:
            logger.warning(
                "rank 0 at %s unreachable for %.0f s (%s); retrying until %.0f s",
                *(Endpoint(host, port), waited_s, reason, timeout_s),
            )
            warned_at = time.monotonic()
        time.sleep(min(0.02 * attempts, 0.5))
