"""The ranks of this job: connect to them once, then ask for groups by name.

    fleet.init ──▶ connect ──▶ store (rendezvous) ──▶ watch ──▶ groups "dp", "util", … as they are asked for

The table of the connected world is the only thing of the process that this file holds.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import atexit
import ctypes
import sys
import threading
import time
from datetime import timedelta
from types import TracebackType
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from argosy.engine import env
from argosy.engine.collective import rendezvous, route, sharing
from argosy.engine.collective.absent import Patience, look_after, store_is_gone
from argosy.engine.collective.flat_buffer import FlatBuffer, area_bytes
from argosy.engine.collective.group import Group
from argosy.engine.collective.hierarchy import Hierarchy
from argosy.engine.collective.host_plane import DTYPES, HostPlane, plane_bytes
from argosy.engine.collective.identity import Identity, read, split_endpoint
from argosy.engine.collective.members import members
from argosy.engine.collective.sharing import Shared
from argosy.engine.collective.watch import Watch
from argosy.engine.errors import CollectiveError, ConfigError
from argosy.engine.log import logger

_FIRST_NOTE_S = 10.0


class World:
    """All ranks of the job, as one of them sees it."""

    def __init__(self, identity: Identity, store: Store | None = None, connect_s: float = 300.0) -> None:
        self.identity = identity
        self.rank, self.size = identity.rank, identity.size
        self.store = store
        self.connect_s = connect_s
        self.watch = Watch(store, self.rank, self.size)
        self.device = (
            torch.device("cuda", identity.local_rank) if _use_nccl(identity) else torch.device("cpu")
        )
        self.schedules = 0
        """How many programs the ranks have compared so far."""
        self._groups: dict[str, Group] = {}
        self._buffers: dict[tuple[str, int, torch.dtype, str], FlatBuffer] = {}
        self._hosts: list[str] = []
        self._address = ""

    @property
    def step(self) -> int:
        """How many steps with communication this rank has finished."""
        return self.watch.own.step

    def num_started(self) -> int:
        """How many collectives this rank has started."""
        return sum(self.watch.own.started.values())

    def note_failed_step(self, started_before: int, error: BaseException) -> None:
        """A step failed. If it had exchanged something, the ranks are out of step: nothing more is exchanged."""
        if self.num_started() > started_before:
            self.watch.broken = f"{type(error).__name__}: {error}"

    def count_step(self) -> None:
        """Say that another step is done."""
        self.watch.own.step += 1

    def group(self, name: str = "dp") -> Group:
        """The group of this name (see members.py), made by the first call, which all ranks make together."""
        if name not in self._groups:
            self._groups[name] = self._make(name)
        return self._groups[name]

    def hierarchy(self, name: str, block: int, by_leaders: bool) -> Hierarchy:
        """A communicator's groups for sums in two stages: blocks of so many ranks, and between them."""
        outer = "leaders" if by_leaders else "across"
        return Hierarchy(self.group(f"{name}/inner{block}"), self.group(f"{name}/{outer}{block}"), by_leaders)

    def flat_buffer(self, name: str, numel: int, dtype: torch.dtype, group: str) -> FlatBuffer:
        """Memory for gradients, the same at every call; the ranks of `group` share it if they are on one host."""
        key = (name, numel, dtype, group)
        if key not in self._buffers:
            nbytes = (len(members(group, self.rank, self.size)) + 1) * area_bytes(numel, dtype)
            what = f"buffer{len(self._buffers)}"  # of its own: the name may have been used with another size
            shared = self._share(what, group, nbytes) if dtype in DTYPES else None
            self._buffers[key] = FlatBuffer(numel, dtype, self.device, shared)
        return self._buffers[key]

    def hosts(self) -> list[str]:
        """By rank: which host it is on."""
        if not self._hosts:
            own = sharing.host_id()
            self._hosts = [own] if self.store is None else self.meet("hosts#1 (who is where)", own)
        return self._hosts

    def who(self, rank: int) -> str:
        """A rank with its endpoint, for messages."""
        known = self.identity.endpoints
        return f"rank {rank} ({known[rank]})" if known else f"rank {rank}"

    def meet(self, what: str, value: str = "") -> list[str]:
        """Wait until every rank has come to this point; returns what each of them brought.

        `what` is used once: "util#1 new group", a name of its own with a number, as in the watch's records.
        """
        assert self.store is not None, f"a single rank meets nobody ({what})"
        name, _, number = what.split(" ", 1)[0].partition("#")
        own = self.watch.own
        own.started[name] = max(own.started.get(name, 0), int(number))
        own.waiting, own.waiting_for = what, list(range(self.size))
        # In a thread, because whoever asks the store while rank 0 is stopped gets no answer, not even late.
        meeting = _Meeting(self.store, [f"meet/{what}/{rank}" for rank in range(self.size)], self.rank, value)
        began, note_s = time.monotonic(), _FIRST_NOTE_S
        try:
            while not meeting.done(timeout_s=1.0):
                told = self.watch.look()
                for rank in range(self.size):
                    if rank != self.rank and (
                        rank not in told or told[rank].started.get(name, 0) < int(number)
                    ):
                        here, waited_s = f"{what}, with {self.who(rank)}", time.monotonic() - began
                        look_after(self.watch, rank, here, waited_s, patience(self.connect_s))
                if meeting.failed or self.watch.store_is_gone:
                    raise store_is_gone(what)
                waited_s = time.monotonic() - began
                if waited_s > note_s:
                    absent = [self.who(r) for r in range(self.size) if r != self.rank and r not in told]
                    names = ", ".join(absent) or "ranks that are busy with something else"
                    logger.warning("%s: waiting since %.0f s for %s", what, waited_s, names)
                    note_s *= 2
        finally:
            own.waiting = ""
            meeting.is_over.set()
        return meeting.found

    def _make(self, name: str) -> Group:
        ranks = members(name, self.rank, self.size)
        if self.store is None:
            return Group(name, None, ranks, self.watch, Patience())
        self.meet(f"group-{name}#1 (the first exchange of all ranks in group {name!r})")
        backend = self._backend(name, ranks) if len(ranks) > 1 else None
        shared = self._share(name, name, plane_bytes(len(ranks))) if name != "util" else None
        plane = None if shared is None else HostPlane(shared)
        return Group(name, backend, ranks, self.watch, patience(), plane)

    def _share(self, what: str, group: str, nbytes: int) -> Shared | None:
        """Memory that the ranks of a group share, if every group of this name is on one host."""
        wanted = env.flag("ARGOSY_HOST_PLANE", default=True) and sharing.is_possible()
        if not wanted or self.device.type != "cpu" or self.size == 1:
            return None
        everyone = [members(group, rank, self.size) for rank in range(self.size)]
        if any(len({self.hosts()[member] for member in ranks}) > 1 for ranks in everyone):
            return None
        return sharing.share(self.meet, what, everyone[self.rank], self.rank, nbytes)

    def _backend(self, name: str, ranks: tuple[int, ...]) -> Any:
        assert self.store is not None, name
        store = PrefixStore(f"group/{name}/{ranks[0]}", self.store)
        place, size = ranks.index(self.rank), len(ranks)
        timeout = timedelta(seconds=2 * patience().timeout_s)  # our own looking-after comes first
        if self.device.type == "cuda" and name != "util":  # what the user calls is about arrays of the host
            nccl = dist.ProcessGroupNCCL.Options()
            nccl._timeout = timeout
            return dist.ProcessGroupNCCL(store, place, size, nccl)
        options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # not in the stubs
        options._devices = [self._gloo_device()]
        options._timeout = timeout
        options._threads = 1  # one exchange after the other, as in a stream: two need two communicators
        try:
            made = dist.ProcessGroupGloo(store, place, size, options)
        except RuntimeError as e:
            raise CollectiveError(
                f"rank {self.rank} at {self._address or 'this host'} cannot connect to the others: {e}; check that "
                "the hosts reach each other at these addresses, or name the interface with GLOO_SOCKET_IFNAME"
            ) from e
        # Its destructor would wait for collectives that a lost rank never joins: let the process's end free it.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
        return made

    def _gloo_device(self) -> Any:
        if interface := env.text("GLOO_SOCKET_IFNAME", ""):
            return dist.ProcessGroupGloo.create_device(interface=interface.split(",")[0])
        self._address = self._address or self._own_address()
        logger.debug("rank %d speaks from %s", self.rank, self._address)
        return dist.ProcessGroupGloo.create_device(hostname=self._address)

    def _own_address(self) -> str:
        """The address under which the other ranks reach this one: by the route to them, not by chance."""
        endpoints = [split_endpoint(e, "PADDLE_TRAINER_ENDPOINTS")[0] for e in self.identity.endpoints]
        if endpoints:
            own = endpoints[self.rank]
            others = [host for host in endpoints if host != own]
            return own if route.is_own(own) or not others else route.local_address(others[0])
        master = split_endpoint(self.identity.master, "the address of the store")[0].strip("[]")
        first = route.local_address(master)
        if self.identity.local_size == self.size:
            return first
        return self._outward(first)

    def _outward(self, first: str) -> str:
        """On rank 0's own host the name of that host may be a loopback address: ask the others for theirs."""
        known = self.meet("address#1", first)
        outward = [address for address in known if not route.is_loopback(address)]
        return route.local_address(outward[0]) if route.is_loopback(first) and outward else first


class _Meeting:
    """Brings a value to the store, and fetches those of all ranks when they are there."""

    def __init__(self, store: Store, keys: list[str], rank: int, value: str) -> None:
        self.found: list[str] = []
        self.failed = False
        self.is_over = threading.Event()
        """Set when nobody waits for it any more."""
        self._thread = threading.Thread(target=self._meet, args=(store, keys, rank, value), daemon=True)
        self._thread.start()

    def done(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return bool(self.found)

    def _meet(self, store: Store, keys: list[str], rank: int, value: str) -> None:
        try:
            store.set(keys[rank], value)
            pause_s = 0.001
            while not store.check(keys) and not self.is_over.wait(pause_s):
                pause_s = min(1.1 * pause_s, 0.05)
            if not self.is_over.is_set():
                self.found = [store.get(key).decode() for key in keys]
        except RuntimeError:  # the store is gone: torch.distributed's errors are
            self.failed = True


_world: World | None = None
_has_left = False


def connect(identity: Identity | None = None, timeout_s: float | None = None) -> World:
    """Meet the other ranks; a second call returns the same world."""
    global _world  # noqa: PLW0603  (the table of the process's groups)
    wanted = read() if identity is None else identity
    if _world is not None:
        if (wanted.rank, wanted.size) != (_world.rank, _world.size):
            raise ConfigError(
                f"this process is rank {_world.rank} of {_world.size} already and cannot become rank {wanted.rank} "
                f"of {wanted.size}; initialise once"
            )
        return _world
    if _has_left:
        raise ConfigError(
            "this process has left its job and cannot come back; call disconnect at the very end"
        )
    connect_s = (
        env.seconds("ARGOSY_CONNECT_TIMEOUT_S", Patience.connect_s) if timeout_s is None else timeout_s
    )
    if wanted.size == 1:
        _world = World(wanted)
        return _world
    store = rendezvous.open_store(wanted, connect_s)
    _world = World(wanted, store, connect_s)
    _tell_the_end(_world)
    return _world


def disconnect() -> None:
    """Leave the world; the other ranks are told that this one has ended."""
    global _world, _has_left  # noqa: PLW0603
    if _world is not None:
        _world.watch.end("done")
        _has_left = _world.size > 1
    _world = None


def is_connected() -> bool:
    """True after connect."""
    return _world is not None


def world() -> World:
    """The world that this process is connected to, or the one of a single rank."""
    return _world if _world is not None else _ALONE


def patience(connect_s: float = Patience.connect_s) -> Patience:
    """How long ranks wait for each other, from the environment."""
    timeout_s = env.seconds("ARGOSY_COLLECTIVE_TIMEOUT_S", Patience.timeout_s)
    return Patience(timeout_s, min(env.seconds("ARGOSY_SILENT_S", Patience.silent_s), timeout_s), connect_s)


def _tell_the_end(made: World) -> None:
    """Whichever way the process ends, the others shall know: done, or with which exception or exit code."""
    watch, show, leave = made.watch, sys.excepthook, sys.exit
    left: list[object] = []

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        show(kind, error, trace)  # the traceback first: telling may take a while
        watch.end(f"{kind.__name__}: {error}"[:500])

    def note_and_leave(code: Any = None) -> NoReturn:
        if threading.current_thread() is threading.main_thread():
            left[:] = [code] if code else []
        leave(code)

    # SystemExit passes no hook, and at exit nothing tells any more with which code.
    sys.excepthook, sys.exit = hook, note_and_leave
    atexit.register(lambda: watch.end(f"SystemExit: {left[0]}"[:500] if left else "done"))


def _use_nccl(identity: Identity) -> bool:
    return identity.size > 1 and torch.cuda.is_available() and dist.is_nccl_available()


_ALONE = World(Identity())
