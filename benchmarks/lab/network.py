"""A Lab: hosts with addresses, and a switch between them; each link has a rate in both directions.

    host 0  eth0 10.77.N.1 ──tbf──▶ ┌────────┐ ──tbf──▶ eth0 10.77.N.2  host 1
                           ◀──tbf── │ switch │ ◀──tbf──
                                    └────────┘

Hosts and switch are network namespaces, so nothing of them shows on the machine's own interfaces. They are
named argosy-<pid>-<start of that process>-<count>-<what>: labs stand side by side, and one whose process is
gone can be distinguished from one in use.
"""

# SPDX-License-Identifier: Apache-2.0
import atexit
import contextlib
import itertools
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from argosy.engine.errors import ConfigError
from lab import namespaces
from lab.namespaces import call

INTERFACE = "eth0"
_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_QUEUE = "20ms"
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_numbers = itertools.count()


class Lab:
    """So many hosts with links of this rate, as a context manager; None: as fast as the machine can."""

    def __init__(self, hosts: int, rate: str | None = "1gbit") -> None:
        if not 2 <= hosts <= 250:
            raise ConfigError(f"a lab of {hosts} hosts; use 2 to 250")
        self.rate = rate
        self.bits_per_s = None if rate is None else bits_per_s(rate)
        number = next(_numbers)
        prefix = f"argosy-{os.getpid()}-{_start_of(os.getpid())}-{number}"
        # Nothing leads from one lab to another, so two with the same subnet would not hurt each other.
        subnet = (os.getpid() + number) % 256
        self.names = [f"{prefix}-host{i}" for i in range(hosts)]
        self.addresses = [f"10.77.{subnet}.{i + 1}" for i in range(hosts)]
        self._switch = f"{prefix}-switch"
        self._owner = os.getpid()
        self._started: list[subprocess.Popen[Any]] = []
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Lab":
        """Build it; OSError, with nothing left behind, where that is not possible."""
        sweep()
        atexit.register(self.tear_down)  # if an exception falls between here and the body of `with`
        self._end_on_signals()
        try:
            self._build()
        except BaseException:
            self.tear_down()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.tear_down()

    def start(self, host: int, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a process on a host; the options are those of subprocess.Popen."""
        process = subprocess.Popen(["ip", "netns", "exec", self.names[host], *command], **options)
        self._started.append(process)
        return process

    def tear_down(self) -> None:
        """End what runs in it and remove it; a second time there is nothing to do."""
        if os.getpid() != self._owner:
            return  # a forked child has a copy of this object, but not the lab
        with _undisturbed():
            for process in self._started:
                process.terminate()  # also one that has not yet got to its host
            namespaces.remove([*self.names, self._switch])
            for process in self._started:
                with process:  # waits, and closes its pipes
                    process.kill()
        self._started.clear()
        atexit.unregister(self.tear_down)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers.clear()

    def _build(self) -> None:
        for name in (self._switch, *self.names):
            call("ip", "netns", "add", name)
        call("ip", "-n", self._switch, "link", "add", "switch", "type", "bridge")
        call("ip", "-n", self._switch, "link", "set", "switch", "up")
        for host, (name, address) in enumerate(zip(self.names, self.addresses, strict=True)):
            self._plug_in(name, address, f"host{host}")

    def _plug_in(self, name: str, address: str, port: str) -> None:
        cable = ("type", "veth", "peer", "name", INTERFACE, "netns", name)
        call("ip", "-n", self._switch, "link", "add", port, *cable)
        call("ip", "-n", self._switch, "link", "set", port, "master", "switch", "up")
        call("ip", "-n", name, "link", "set", "lo", "up")
        call("ip", "-n", name, "addr", "add", f"{address}/24", "dev", INTERFACE)
        # No address of IPv6: a host is known by one address.
        call("ip", "-n", name, "link", "set", INTERFACE, "addrgenmode", "none", "up")
        if self.bits_per_s is not None:
            self._shape(name, port, self.bits_per_s)

    def limit(self, host: int, rate: str) -> None:
        """Change the rate of the link of one host, also while processes use it."""
        self._shape(self.names[host], f"host{host}", bits_per_s(rate))

    def unlimit(self, host: int) -> None:
        """Remove the limit of the link of one host."""
        name, port = self.names[host], f"host{host}"
        call("ip", "-n", name, "link", "set", INTERFACE, "gso_max_size", "65536")
        for where, interface in ((name, INTERFACE), (self._switch, port)):
            call("tc", "-n", where, "qdisc", "del", "dev", interface, "root")

    def _shape(self, name: str, port: str, rate: float) -> None:
        """Limit both directions of a link.

        The burst passes at once after a pause, so a large one makes small messages free; packets that exceed
        it are cut up, which takes a whole core at 1 Gbit/s. So packets are limited to 0.25 ms of the link,
        and two of them are the burst: 93 % of the rate arrive, for a sixth of a core (measured).
        """
        packet = int(min(max(rate * 0.25e-3 / 8, 4000), 65536))
        call("ip", "-n", name, "link", "set", INTERFACE, "gso_max_size", str(packet))
        for where, interface in ((name, INTERFACE), (self._switch, port)):
            bucket = ("tbf", "rate", f"{rate:.0f}bit", "burst", str(2 * packet), "latency", _QUEUE)
            call("tc", "-n", where, "qdisc", "replace", "dev", interface, "root", *bucket)

    def _end_on_signals(self) -> None:
        """TERM and HUP become SystemExit, so that `with` tears down; a handler of the user's own stays."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _ENDING:
            if signal.getsignal(number) is signal.SIG_DFL:
                self._handlers[number] = signal.signal(number, _exit)

    @staticmethod
    def leftovers() -> list[str]:
        """The namespaces of labs whose process is gone without tearing them down."""
        if not namespaces.FOLDER.exists():
            return []
        matches = [
            (p.name, re.match(r"argosy-(\d+)-(\d+)-\d+-", p.name)) for p in namespaces.FOLDER.iterdir()
        ]
        return sorted(name for name, m in matches if m and _start_of(int(m[1])) != int(m[2]))


def sweep() -> list[str]:
    """Remove what killed labs have left, with the processes in it; gives the names."""
    left = Lab.leftovers()
    namespaces.remove(left)
    return left


def bits_per_s(rate: str) -> float:
    """The number of a rate such as 1gbit, 100mbit or 512kbit."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(kbit|mbit|gbit)", rate)
    value = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not 1e6 <= value <= 100e9:
        raise ConfigError(f"rate {rate!r}; use 1mbit to 100gbit, for example 1gbit or 100mbit")
    return value


def _start_of(pid: int) -> int:
    """When the process started, in ticks since the machine did; -1 if there is none. Pids come again."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError):
        return -1


def _exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Hold signals back: a second Ctrl-C must not leave half a lab."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, *_ENDING})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
