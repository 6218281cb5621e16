"""How ranks find each other: a key-value store at rank 0's endpoint, which every rank connects to.

    rank 0   listens on exactly its endpoint's address ──▶ store
    others   try until it answers, and say what they try

The store is torch's TCPStore. It listens where it is told to and nowhere else; keys begin with the job's
token and the number of the restart, so that a rank of an older life of the job meets nobody.
"""

# SPDX-License-Identifier: Apache-2.0
import os
import socket
import threading
import time
from datetime import timedelta

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from argosy.engine import env
from argosy.engine.collective.identity import Identity, split_endpoint
from argosy.engine.collective.route import is_loopback
from argosy.engine.errors import CollectiveError, ConfigError
from argosy.engine.log import logger

_NOTE_AFTER_S = 10.0


def open_store(identity: Identity, timeout_s: float) -> Store:
    """The job's store, seen by this rank; rank 0 makes it unless the launcher has one."""
    host, port = split_endpoint(identity.master, "the address of the store")
    host = host.strip("[]")
    if identity.hosts_store:
        is_alone = identity.local_size == identity.size
        listener = _listener(host, port, is_alone)
        store = _connect(host, port, timeout_s, listener)
        os.set_inheritable(listener, False)  # what the script starts must not keep the port
    else:
        _await_answer(host, port, timeout_s)
        store = _await_store(host, port, timeout_s)
    return PrefixStore(f"argosy/{identity.token}/{identity.restart}", store)


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

    In a thread: the launcher's socket takes connections long before rank 0 answers them, and TCPStore
    waits for the answer without a limit.
    """
    found: list[TCPStore | RuntimeError] = []

    def connect() -> None:
        try:
            found.append(_connect(host, port, timeout_s))
        except RuntimeError as e:
            found.append(e)

    thread = threading.Thread(target=connect, name="argosy-rendezvous", daemon=True)
    began = time.monotonic()
    thread.start()
    while not found and (left_s := timeout_s - (time.monotonic() - began)) > 0:
        thread.join(min(left_s, _NOTE_AFTER_S))
        if not found and left_s > _NOTE_AFTER_S:
            logger.warning("rank 0 at %s:%d has not opened the job's store yet", host, port)
    if found and isinstance(found[0], TCPStore):
        return found[0]
    reason = str(found[0]).splitlines()[0] if found else "no answer"
    raise CollectiveError(
        f"rank 0 at {host}:{port} takes connections, but has not opened the job's store within {timeout_s:g} s "
        f"({reason}); it has not come to fleet.init, or something else listens there; see its log. "
        "ARGOSY_CONNECT_TIMEOUT_S gives it more time"
    )


def _listener(host: str, port: int, is_alone: bool) -> int:
    """The descriptor of a socket that listens at this address: the launcher's, or a new one.

    `is_alone`: all ranks are on this host.
    """
    if given := env.text("ARGOSY_STORE_FD", ""):
        return int(given)
    try:
        # On Debian a host's own name is 127.0.1.1, where other hosts would knock in vain.
        hides = not is_alone and is_loopback(socket.gethostbyname(host))
        return socket.create_server(("" if hides else host, port), reuse_port=False).detach()
    except OSError as e:
        raise ConfigError(
            f"rank 0 cannot listen at {host}:{port}: {os.strerror(e.errno or 0)}; end what uses the port, or "
            "choose another (MASTER_PORT, or fleetrun's --start_port)"
        ) from e


def _await_answer(host: str, port: int, timeout_s: float) -> None:
    """Try until rank 0's endpoint answers."""
    began, tries, noted = time.monotonic(), 0, time.monotonic()
    while True:
        tries += 1
        try:
            socket.create_connection((host, port), timeout=min(5.0, timeout_s)).close()
            return
        except OSError as e:
            reason = e.strerror or str(e)
        spent = time.monotonic() - began
        if spent > timeout_s:
            raise CollectiveError(
                f"rank 0 at {host}:{port} never answered: {tries} tries in {spent:.0f} s, the last one: {reason}; "
                "check that its process runs, that the port is open between the hosts, and that every host was "
                "given the same list of addresses"
            )
        if time.monotonic() - noted > _NOTE_AFTER_S:
            logger.warning("rank 0 at %s:%d does not answer since %.0f s (%s)", host, port, spent, reason)
            noted = time.monotonic()
        time.sleep(min(0.02 * tries, 0.5))
