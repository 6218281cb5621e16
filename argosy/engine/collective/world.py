"""The ranks of this job: connect to them once, then get process groups by name.

    fleet.init ──▶ connect ──▶ store (rendezvous) ──▶ heartbeats ──▶ groups "dp", "util", …, created on first use

Before the first step of a program, all ranks compare their collective schedules:

    rank 0   all_reduce dp fc_0.w_0@GRAD float32[784, 10]     rank 1   all_reduce dp fc_0.w_0@GRAD float32[784, 10]
             all_reduce dp fc_0.b_0@GRAD float32[10]                   all_reduce dp fc_1.w_0@GRAD float32[10, 10]
                                                                       ▲ the first difference is reported

The connected world is the only state at module level.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import atexit
import ctypes
import hashlib
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from itertools import zip_longest
from types import TracebackType
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store
from torch.utils.weak import WeakIdKeyDictionary

from argosy.engine import env, process_effects
from argosy.engine.collective.group import Group, as_range, distinct_groups, members
from argosy.engine.collective.hierarchy import Hierarchy
from argosy.engine.collective.host_memory import HostMemory
from argosy.engine.collective.identity import Identity, read
from argosy.engine.collective.pending_gathers import PendingGathers
from argosy.engine.collective.rank_liveness import (
    RankMonitor,
    Timeouts,
    check_peer,
    check_store,
    store_lost_error,
)
from argosy.engine.collective.rendezvous import open_store
from argosy.engine.collective.sharding import ShardGroups, sharding_group
from argosy.engine.collective.shm import (
    FlatBuffer,
    FlatBuffers,
    SharedSegment,
    host_id,
    is_supported,
    map_segment,
    padded_bytes,
)
from argosy.engine.collective.shm_collectives import DTYPES, ShmCollectives, shm_bytes
from argosy.engine.collective.store_all_gather import StoreAllGather
from argosy.engine.errors import CollectiveError, ConfigError, ScheduleError
from argosy.engine.log import logger
from argosy.engine.net import (
    address_of_interface,
    family_of,
    host_of,
    is_local,
    is_loopback,
    local_address,
)

_FIRST_WARNING_S = 10.0
_MAX_NAMED = 16
_END_OF_SCHEDULE = "nothing more"


class World:
    """All ranks of the job, as seen by this one."""

    def __init__(
        self, identity: Identity, store: Store | None = None, connect_timeout_s: float = 300.0
    ) -> None:
        self.identity = identity
        self.rank, self.size = identity.rank, identity.size
        self.store = store
        self.connect_timeout_s = connect_timeout_s
        self.monitor = RankMonitor(store, self.rank, self.size)
        self.device = (
            torch.device("cuda", identity.local_rank) if _use_nccl(identity) else torch.device("cpu")
        )
        self.num_schedules = 0
        """How many schedules the ranks have compared so far."""
        self._groups: dict[str, Group] = {}
        self.buffers = FlatBuffers()
        self.shared_weights: WeakIdKeyDictionary = WeakIdKeyDictionary()
        """The tensors in memory that this rank shares with others of its host; see runtime/shared_weights.py."""
        self.host_memory = HostMemory()
        self.gathers = PendingGathers(self.monitor)
        """The all-gathers of parameters in flight; whatever reads a parameter waits for its all-gather."""
        self._num_weight_segments = 0
        self.lock = threading.RLock()
        """Serializes what all ranks create together, once: groups, buffers, compared schedules."""
        self._hosts: list[str] = []
        self._address = ""

    @property
    def step(self) -> int:
        """How many steps with communication this rank has finished."""
        return self.monitor.local.step

    def num_started(self) -> int:
        """How many collectives this rank has started."""
        return sum(self.monitor.local.started.values())

    def note_failed_step(self, started_before: int, error: BaseException) -> None:
        """Record that a step failed. If it had started a collective, the ranks are out of step: no more may start."""
        if self.num_started() > started_before:
            self.monitor.failed_step = f"{type(error).__name__}: {error}"

    def count_step(self) -> None:
        """Record that another step is done."""
        self.monitor.local.step += 1

    def group(self, name: str = "dp") -> Group:
        """The group of this name (see group.py); created by the first call, which all ranks make together."""
        with self.lock:
            if name not in self._groups:
                self._groups[name] = self._create_group(name)
            return self._groups[name]

    def hierarchy(self, name: str, block: int, by_leaders: bool) -> Hierarchy:
        """A communicator's groups for a hierarchical all-reduce: inside blocks of so many ranks, and between them."""
        inter = "leaders" if by_leaders else "inter"
        return Hierarchy(self.group(f"{name}/intra{block}"), self.group(f"{name}/{inter}{block}"), by_leaders)

    def shard_groups(self, name: str, degree: int) -> ShardGroups:
        """A communicator's groups for state that is sharded over `degree` consecutive ranks (see sharding.py)."""
        return ShardGroups(
            self.group(sharding_group(name, degree, self.size)), self.group(f"{name}/inter{degree}")
        )

    def flat_buffer(
        self, name: str, numel: int, dtype: torch.dtype, group: str, has_result: bool = True
    ) -> FlatBuffer:
        """A buffer for gradients, the same at every call for one owner; in shared memory if `group` is on one host.

        It is freed with its owner, see `FlatBuffers.owned_by`.
        """

        def create() -> FlatBuffer:
            nbytes = (len(members(group, self.rank, self.size)) + has_result) * padded_bytes(numel, dtype)
            unique = f"buffer{self.buffers.num_created}"  # other owners and sizes may use the same name
            segment = self._map_segment(unique, group, nbytes) if dtype in DTYPES else None
            return FlatBuffer(numel, dtype, self.device, segment, has_result)

        with self.lock:
            return self.buffers.get((name, numel, dtype, group, has_result), create)

    def map_weights(self, group: str, nbytes: int) -> SharedSegment | None:
        """Memory for weights that the ranks of a group share; None if they cannot. All ranks call it together."""
        with self.lock:
            if self.group(group).shm is None:
                return None
            self._num_weight_segments += 1
            return self._map_segment(f"weights{self._num_weight_segments}", group, nbytes)

    def hosts(self) -> list[str]:
        """By rank: the id of its host."""
        if not self._hosts:
            local = host_id()
            self._hosts = (
                [local] if self.store is None else self.all_gather_object("hosts#1 (host ids)", local)
            )
        return self._hosts

    def name_of(self, rank: int) -> str:
        """A rank with its endpoint, for messages."""
        endpoints = self.identity.endpoints
        return f"rank {rank} ({endpoints[rank]})" if endpoints else f"rank {rank}"

    def all_gather_object(self, what: str, value: str = "", ranks: Sequence[int] | None = None) -> list[str]:
        """Gather a string from every rank through the store, in rank order; also a barrier of these ranks.

        `what` begins with a name and a sequence number, "util#1 (new group)", as in `RankStatus.waiting`. Each is used
        once. `ranks`: those of a process group, by default all.
        """
        assert self.store is not None, f"a single rank has no store ({what})"
        name, _, number = what.split(" ", 1)[0].partition("#")
        status = self.monitor.local
        status.started[name] = max(status.started.get(name, 0), int(number))
        ranks = range(self.size) if ranks is None else ranks
        status.waiting, status.waiting_for = what, as_range(ranks)
        key = f"all_gather/{what}/{ranks[0]}"
        pending = StoreAllGather(self.store, key, ranks.index(self.rank), len(ranks), value)
        began, next_warning_s = time.monotonic(), _FIRST_WARNING_S
        try:
            while not pending.is_complete(timeout_s=1.0):
                self.monitor.poll()
                limits = timeouts(self.connect_timeout_s)
                for rank in self.monitor.behind(ranks, name, int(number)):
                    here, waited_s = f"{what}, with {self.name_of(rank)}", time.monotonic() - began
                    check_peer(self.monitor, rank, here, waited_s, limits)
                if pending.failed:
                    raise store_lost_error(what)
                check_store(self.monitor, what, limits)
                waited_s = time.monotonic() - began
                if waited_s > next_warning_s:
                    missing = sorted(self.monitor.unconnected)[:_MAX_NAMED]
                    names = ", ".join(map(self.name_of, missing)) or "ranks that are busy with something else"
                    logger.warning("%s: waited %.0f s so far for %s", what, waited_s, names)
                    next_warning_s *= 2
        finally:
            status.waiting = ""
            pending.cancelled.set()
        return pending.values

    def _create_group(self, name: str) -> Group:
        ranks = members(name, self.rank, self.size)
        if self.store is None:
            return Group(name, None, ranks, self.monitor, Timeouts())
        self.all_gather_object(f"group-{name}#1 (creating process group {name!r})")
        backend = self._backend(name, ranks) if len(ranks) > 1 else None
        segment = self._map_segment(name, name, shm_bytes(len(ranks))) if name != "util" else None
        shm = None if segment is None else ShmCollectives(segment)
        return Group(name, backend, ranks, self.monitor, timeouts(), shm)

    def _map_segment(self, name: str, group: str, nbytes: int) -> SharedSegment | None:
        """Memory shared by the ranks of a group, if every group of this name is on one host."""
        is_enabled = env.flag("ARGOSY_SHM", default=True) and is_supported()
        if not is_enabled or self.device.type != "cpu" or self.size == 1:
            return None
        hosts = self.hosts()
        if len(set(hosts)) > 1 and any(
            len({hosts[member] for member in ranks}) > 1 for ranks in distinct_groups(group, self.size)
        ):
            return None
        return map_segment(
            self.all_gather_object, name, members(group, self.rank, self.size), self.rank, nbytes
        )

    def _backend(self, name: str, ranks: tuple[int, ...]) -> Any:
        assert self.store is not None, name
        store = PrefixStore(f"group/{name}/{ranks[0]}", self.store)
        index, size = ranks.index(self.rank), len(ranks)
        timeout = timedelta(seconds=2 * timeouts().collective_timeout_s)  # check_peer raises first
        if self.device.type == "cuda" and name != "util":  # fleet.util works on arrays of the host
            nccl = dist.ProcessGroupNCCL.Options()
            nccl._timeout = timeout
            return dist.ProcessGroupNCCL(store, index, size, nccl)
        options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # not in the stubs
        options._devices = [self._gloo_device()]
        options._timeout = timeout
        options._threads = 1  # collectives run in order, as in a stream; to overlap, use two communicators
        try:
            backend = dist.ProcessGroupGloo(store, index, size, options)
        except RuntimeError as e:
            raise CollectiveError(
                f"rank {self.rank} at {self._address or 'this host'} cannot connect to the others: {e}; check that "
                "the hosts reach each other at these addresses, or name the interface with GLOO_SOCKET_IFNAME"
            ) from e
        # Leak a reference: the destructor would wait for collectives that a lost rank never joins.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(backend))
        process_effects.install("process-groups", lambda: None)
        return backend

    def _gloo_device(self) -> Any:
        if not self._address and (interface := env.text("GLOO_SOCKET_IFNAME", "").split(",")[0]):
            family = family_of(local_address(host_of(self.identity.master)))
            self._address = address_of_interface(interface, family, "GLOO_SOCKET_IFNAME")
        self._address = self._address or self._local_address()
        logger.debug("rank %d uses the address %s", self.rank, self._address)
        # Lazy: two ranks connect when they first exchange data. A ring needs two connections per rank, not size - 1.
        return dist.ProcessGroupGloo.create_device(hostname=self._address, lazy_init=True)

    def _local_address(self) -> str:
        """The address at which the other ranks reach this one, chosen by the route to them."""
        hosts = [host_of(e) for e in self.identity.endpoints]
        if hosts:
            local = hosts[self.rank]
            others = [host for host in hosts if host != local]
            return local if is_local(local) or not others else local_address(others[0])
        master = host_of(self.identity.master)
        address = local_address(master)
        if self.identity.local_size == self.size:
            return address
        return self._reachable(address)

    def _reachable(self, address: str) -> str:
        """Replace a loopback address, to which rank 0's host may resolve its own name, by the route to another host."""
        addresses = self.all_gather_object("address#1", address)
        reachable = [other for other in addresses if not is_loopback(other)]
        return local_address(reachable[0]) if is_loopback(address) and reachable else address


def compare_schedules(world: World, schedule: Sequence[str]) -> None:
    """Raise ScheduleError on every rank if their schedules differ; each line describes one collective."""
    if world.store is None:
        return
    world.num_schedules += 1
    text = "\n".join(schedule)
    digest = hashlib.sha256(text.encode()).hexdigest()
    digests = world.all_gather_object(
        f"schedule#{world.num_schedules} (comparing programs before the first step)", digest
    )
    if len(set(digests)) > 1:
        texts = world.all_gather_object(
            f"schedule-text#{world.num_schedules} (locating the first difference)", text
        )
        raise ScheduleError(_first_difference([schedule_text.splitlines() for schedule_text in texts]))


def _first_difference(schedules: Sequence[Sequence[str]]) -> str:
    """Describe the first line in which the ranks of the minority differ from the majority."""
    majority = Counter(tuple(schedule) for schedule in schedules).most_common(1)[0][0]
    minority = [rank for rank, schedule in enumerate(schedules) if tuple(schedule) != majority]
    other = next(rank for rank, schedule in enumerate(schedules) if tuple(schedule) == majority)
    lines = enumerate(zip_longest(schedules[minority[0]], majority, fillvalue=_END_OF_SCHEDULE))
    number, (actual, expected) = next((n, pair) for n, pair in lines if pair[0] != pair[1])
    more = f" (and {len(minority) - 1} more ranks)" if len(minority) > 1 else ""
    return (
        f"the ranks have different programs: collective {number + 1} of rank {minority[0]}{more} is {actual!r}, and "
        f"that of rank {other} is {expected!r}; build the same model with the same arguments and strategy on every rank"
    )


_world: World | None = None
_has_disconnected = False


def connect(identity: Identity | None = None, timeout_s: float | None = None) -> World:
    """Connect to the other ranks; a second call returns the same world."""
    global _world  # noqa: PLW0603  (the table of the process's groups)
    requested = read() if identity is None else identity
    if _world is not None:
        if (requested.rank, requested.size) != (_world.rank, _world.size):
            raise ConfigError(
                f"this process is rank {_world.rank} of {_world.size} already and cannot become rank "
                f"{requested.rank} of {requested.size}; initialise once"
            )
        return _world
    if _has_disconnected:
        raise ConfigError(
            "this process has disconnected from its job and cannot rejoin; call disconnect at the very end"
        )
    if timeout_s is None:
        timeout_s = env.seconds("ARGOSY_CONNECT_TIMEOUT_S", Timeouts.connect_timeout_s)
    if requested.size == 1:
        _world = World(requested)
        return _world
    store = open_store(requested, timeout_s)
    _world = World(requested, store, timeout_s)
    connected = _world
    process_effects.install("exit-hooks", lambda: _publish_outcome_at_exit(connected))
    return _world


def disconnect() -> None:
    """Leave the job; publishes to the other ranks that this one has finished."""
    global _world, _has_disconnected  # noqa: PLW0603
    if _world is not None:
        _world.gathers.finish()
        _world.monitor.finish("done")
        _has_disconnected = _world.size > 1
    _world = None
    process_effects.undo("exit-hooks")


def is_connected() -> bool:
    """True after connect."""
    return _world is not None


def world() -> World:
    """The world that this process is connected to, or a world of one rank."""
    return _world if _world is not None else _SINGLE


def timeouts(connect_timeout_s: float = Timeouts.connect_timeout_s) -> Timeouts:
    """How long ranks wait for each other, from the environment."""
    collective_timeout_s = env.seconds("ARGOSY_COLLECTIVE_TIMEOUT_S", Timeouts.collective_timeout_s)
    heartbeat_timeout_s = env.seconds("ARGOSY_HEARTBEAT_TIMEOUT_S", Timeouts.heartbeat_timeout_s)
    return Timeouts(collective_timeout_s, min(heartbeat_timeout_s, collective_timeout_s), connect_timeout_s)


def _publish_outcome_at_exit(connected: World) -> process_effects.Undo:
    """Publish, whichever way the process ends, its outcome: done, an exception, or an exit code.

    Returns a function that restores `sys.exit` and `sys.excepthook`, unless another library has replaced them since.
    """
    monitor = connected.monitor
    previous_hook, previous_exit = sys.excepthook, sys.exit
    exit_codes: list[object] = []

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        previous_hook(kind, error, trace)  # print the traceback first: publishing may take a while
        monitor.finish(f"{kind.__name__}: {error}"[:500])

    def record_and_exit(code: Any = None) -> NoReturn:
        if threading.current_thread() is threading.main_thread():
            exit_codes[:] = [code] if code else []
        previous_exit(code)

    def at_exit() -> None:
        raised = getattr(sys, "last_value", None)  # set by fleetrun's bootstrap
        code = raised.code if isinstance(raised, SystemExit) else next(iter(exit_codes), None)
        if not code and not monitor.local.outcome:  # an exception has published its outcome
            connected.gathers.finish()
        monitor.finish(f"SystemExit: {code}"[:500] if code else "done")

    # SystemExit calls no excepthook, and Python does not pass the exit code to atexit functions.
    sys.excepthook, sys.exit = hook, record_and_exit
    atexit.register(at_exit)

    def undo() -> None:
        atexit.unregister(at_exit)
        if sys.excepthook is hook:
            sys.excepthook = previous_hook
        if sys.exit is record_and_exit:
            sys.exit = previous_exit

    return undo


def _use_nccl(identity: Identity) -> bool:
    return identity.size > 1 and torch.cuda.is_available() and dist.is_nccl_available()


_SINGLE = World(Identity())
