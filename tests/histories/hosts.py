"""Hosts for an attacked job: network namespaces (benchmarks/lab) that can be partitioned, or loopback."""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from lab.namespaces import call
from lab.network import INTERFACE, Lab

PARTITIONS = ("link down", "outgoing dropped", "incoming dropped")
"""The host's link has no carrier; packets from the host are lost; packets to the host are lost."""
# tbf drops each packet that is larger than its burst: all of them.
_DROP_ALL = ("tbf", "rate", "1kbit", "burst", "1", "latency", "1ms")
_FIRST_PORT = 6200


class Hosts:
    """So many hosts, as a context manager."""

    def __init__(self, count: int) -> None:
        self._lab: Lab | None = Lab(count, rate=None)
        self._count = count
        self.why_loopback = ""
        """Not empty: there are no network namespaces, and why. All hosts are loopback, without partitions."""

    def __enter__(self) -> "Hosts":
        assert self._lab is not None, "entered once"
        try:
            self._lab.__enter__()
        except OSError as e:
            self._lab, self.why_loopback = None, str(e)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._lab is not None:
            self._lab.__exit__(kind, error, at)

    @property
    def names(self) -> list[str | None]:
        """The namespace of each host; None: this process's own."""
        return [None] * self._count if self._lab is None else [*self._lab.names]

    def endpoint(self, host: int, number: int) -> str:
        """Where a server on this host can listen; `number` distinguishes successive servers."""
        if self._lab is not None:
            return f"{self._lab.addresses[host]}:{_FIRST_PORT + number % 1000}"
        with socket.create_server(("127.0.0.1", 0)) as probe:
            return f"127.0.0.1:{probe.getsockname()[1]}"

    @contextlib.contextmanager
    def partitioned(self, host: int, how: str) -> Iterator[None]:
        """A host without (one direction of) its link."""
        assert self._lab is not None, "partitions need network namespaces"
        switch, port = self._lab._switch, f"host{host}"
        if how == "link down":
            begin = ("ip", "-n", switch, "link", "set", port, "down")
            end = ("ip", "-n", switch, "link", "set", port, "up")
        else:
            at = (self._lab.names[host], INTERFACE) if how == "outgoing dropped" else (switch, port)
            begin = ("tc", "-n", at[0], "qdisc", "add", "dev", at[1], "root", *_DROP_ALL)
            end = ("tc", "-n", at[0], "qdisc", "del", "dev", at[1], "root")
        call(*begin)
        try:
            yield
        finally:
            call(*end)
