"""Endpoints and environment variables of the ranks of this host, in a collective job."""

# SPDX-License-Identifier: Apache-2.0
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from argosy.engine.errors import ConfigError
from argosy.engine.launch import hosts, ports
from argosy.engine.launch.configuration import Configuration, num_cores
from argosy.engine.launch.devices import DeviceAssignment, assign, count_gpus
from argosy.engine.net import Endpoint

_DEFAULT_START_PORT = 6070
_MAX_VARIABLE_BYTES = 1 << 17
"""Linux: MAX_ARG_STRLEN, the longest NAME=VALUE that a process can be started with; about 6,000 endpoints."""
TIMELINE = ("ARGOSY_TIMELINE", "ARGOSY_TIMELINE_STEPS")
_PROXIES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
# Set by an outer job or for another machine; a rank must not inherit them.
NOT_INHERITED = ("ARGOSY_STORE_FD", "ARGOSY_REQUEUE_CODE", *_PROXIES)


@dataclass(frozen=True)
class CollectiveLayout:
    """The part of a collective job that does not change with restarts."""

    config: Configuration
    environ: Mapping[str, str]
    devices: DeviceAssignment
    host_index: int
    addresses: tuple[str, ...]
    start_port: int | None
    """None: free ports from the operating system, chosen at each start."""
    token: str | None
    interface: str | None = None
    """The network interface of the collectives, if --interface selects one for the hosts of --ips."""

    @property
    def num_local(self) -> int:
        return len(self.devices.per_rank)

    @property
    def size(self) -> int:
        return self.num_local * len(self.addresses)


@dataclass(frozen=True)
class JobEndpoints:
    """Every rank's endpoint and devices, by host, in the order of the ranks."""

    by_host: tuple[tuple[str, ...], ...]
    devices: tuple[tuple[tuple[str, ...], ...], ...]
    master: Endpoint
    """MASTER_ADDR and MASTER_PORT, for scripts that call torch.distributed themselves."""

    @property
    def all(self) -> tuple[str, ...]:
        return tuple(endpoint for host in self.by_host for endpoint in host)

    def first_rank(self, host: int) -> int:
        return sum(len(endpoints) for endpoints in self.by_host[:host])


@dataclass(frozen=True, eq=False)
class ProcessSpec:
    """A process to start: a rank, or a server or worker."""

    rank: int
    local_rank: int
    environ: Mapping[str, str]
    shown: tuple[str, ...]
    """The variables that `table` prints, in its order."""
    role: str = "rank"
    """In a job with parameter servers: server or worker."""

    @property
    def name(self) -> str:
        return f"{self.role} {self.rank}"


@dataclass(frozen=True)
class RankPlacement:
    """The ranks of one attempt, with their endpoints."""

    ranks: tuple[ProcessSpec, ...]
    endpoints: tuple[str, ...]
    store: socket.socket | None
    """Listens on rank 0's endpoint; only the host of rank 0 has it."""


def plan(config: Configuration, environ: Mapping[str, str], num_gpus: int | None = None) -> CollectiveLayout:
    """Check the configuration against this host; nothing is started."""
    check_timeline(config)
    devices = assign(config, count_gpus() if num_gpus is None else num_gpus, environ)
    index, addresses = hosts.addresses(config)
    first = start_port(config, environ, len(devices.per_rank))
    if first is None and len(addresses) > 1:
        first = _DEFAULT_START_PORT
    token = environ.get("ARGOSY_JOB_TOKEN")
    if len(addresses) == 1:
        token = token or os.urandom(16).hex()
    # With --nodes the interface determines the address that is sent to the others.
    interface = hosts.collective_interface(config, addresses, index) if config.nodes is None else None
    return CollectiveLayout(config, environ, devices, index, addresses, first, token, interface)


def check_timeline(config: Configuration) -> None:
    """Raise if the timeline's directory exists and is no directory."""
    if config.timeline is not None and os.path.exists(config.timeline) and not os.path.isdir(config.timeline):
        raise ConfigError(f"--timeline={config.timeline} is a file; use a directory, which need not exist")


def place(layout: CollectiveLayout, restart: int) -> RankPlacement:
    """Choose the ports and the environment of each rank of this host."""
    first = layout.addresses[0]
    store = None
    if layout.host_index == 0:
        store = ports.listen(first, layout.start_port or 0, timeout_s=2.0 if restart else 0.0)
    return placement(layout, restart, _endpoints(layout, store), store)


def placement(
    layout: CollectiveLayout, restart: int, job: JobEndpoints, store: socket.socket | None
) -> RankPlacement:
    """The environment of each rank of this host, for these endpoints."""
    common = _common(layout, restart, job)
    ranks = tuple(_rank(layout, common, job, i, store) for i in range(layout.num_local))
    return RankPlacement(ranks, job.all, store)


def start_port(config: Configuration, environ: Mapping[str, str], num: int) -> int | None:
    """--start_port, else FLAGS_START_PORT; raises if fewer than `num` ports follow it."""
    start = config.start_port
    if start is None and (text := environ.get("FLAGS_START_PORT")):
        if not text.isdecimal():
            raise ConfigError(
                f"FLAGS_START_PORT={text!r} is not a port; use a number such as 6070, or unset it"
            )
        start = int(text)
    if start is not None and not 1 <= start <= 65535 - num:
        raise ConfigError(
            f"there are fewer than {num} ports from {start} on, one for each process; use a smaller --start_port"
        )
    return start


def _endpoints(layout: CollectiveLayout, store: socket.socket | None) -> JobEndpoints:
    count, first = layout.num_local, layout.addresses[0]
    devices = (layout.devices.per_rank,) * len(layout.addresses)
    if len(layout.addresses) == 1:
        assert store is not None, "the only host has rank 0"
        *others, master = ports.free_ports(first, count)
        if layout.start_port is None:
            chosen = [store.getsockname()[1], *others]
        else:
            chosen = [layout.start_port + i for i in range(count)]
        return JobEndpoints((endpoints_at(first, chosen),), devices, Endpoint(first, master))
    assert layout.start_port is not None, "several hosts cannot agree on free ports"
    chosen = [layout.start_port + i for i in range(count)]
    by_host = tuple(endpoints_at(address, chosen) for address in layout.addresses)
    return JobEndpoints(by_host, devices, Endpoint(first, layout.start_port + count))


def endpoints_at(address: str, ports: Sequence[int]) -> tuple[str, ...]:
    return tuple(str(Endpoint(address, port)) for port in ports)


def _common(layout: CollectiveLayout, restart: int, job: JobEndpoints) -> dict[str, str]:
    """The variables that are the same for all ranks of this host."""
    size = str(len(job.all))
    variables = {
        "PADDLE_TRAINERS_NUM": size,
        "PADDLE_TRAINER_ENDPOINTS": ",".join(job.all),
        "PADDLE_WORLD_DEVICE_IDS": ",".join(":".join(d) for host in job.devices for d in host),
        "TRAINING_ROLE": "TRAINER",
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": str(layout.num_local),
        "GROUP_RANK": str(layout.host_index),
        "NODE_RANK": str(layout.host_index),
        "GROUP_WORLD_SIZE": str(len(job.by_host)),
        "MASTER_ADDR": job.master.host,
        "MASTER_PORT": str(job.master.port),
        "TORCHELASTIC_RUN_ID": "fleetrun",
        "TORCHELASTIC_RESTART_COUNT": str(restart),
        "TORCHELASTIC_MAX_RESTARTS": str(layout.config.max_restarts),
    }
    _check_size("PADDLE_TRAINER_ENDPOINTS", variables, len(job.all))
    if layout.token:
        variables["ARGOSY_JOB_TOKEN"] = layout.token
    if layout.interface is not None:
        variables |= {"GLOO_SOCKET_IFNAME": layout.interface, "NCCL_SOCKET_IFNAME": layout.interface}
    variables |= torch_variables(layout.environ, max(1, num_cores() // layout.num_local))
    return variables | option_variables(layout.config) | timeline_variables(layout.config)


def _check_size(name: str, variables: Mapping[str, str], num_ranks: int) -> None:
    if (size := len(name) + 1 + len(variables[name])) >= _MAX_VARIABLE_BYTES:
        raise ConfigError(
            f"{num_ranks} ranks: {name}, the list of their endpoints, has {size} bytes, and Linux limits a variable "
            f"to {_MAX_VARIABLE_BYTES}; use fewer ranks on each host"
        )


def torch_variables(environ: Mapping[str, str], threads: int) -> dict[str, str]:
    """Variables of torch, except those that the user has set."""
    variables = {"OMP_NUM_THREADS": str(threads)}
    variables["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # else a lost peer fills the log with C++ stack frames
    return {name: value for name, value in variables.items() if name not in environ}


def option_variables(config: Configuration) -> dict[str, str]:
    """The variables for --log_dir, --timeout, --log_level, --grace and --autotune."""
    variables = {"ARGOSY_METRICS_DIR": os.path.abspath(config.log_dir)}
    if config.timeout_s is not None:
        variables["ARGOSY_COLLECTIVE_TIMEOUT_S"] = f"{config.timeout_s:g}"
    if config.log_level is not None:
        variables["ARGOSY_LOG"] = config.log_level
    if config.grace_s is not None:
        variables["ARGOSY_REQUEUE_CODE"] = str(config.requeued_with)
    if config.autotune:
        variables["ARGOSY_AUTOTUNE"] = "1"
    return variables


def timeline_variables(config: Configuration) -> dict[str, str]:
    """The variables for --timeline and --timeline_steps."""
    variables = {}
    if config.timeline is not None:
        variables["ARGOSY_TIMELINE"] = os.path.abspath(config.timeline)
    if config.timeline_steps is not None:
        variables["ARGOSY_TIMELINE_STEPS"] = config.timeline_steps
    return variables


def _rank(
    layout: CollectiveLayout,
    common: dict[str, str],
    job: JobEndpoints,
    local: int,
    store: socket.socket | None,
) -> ProcessSpec:
    rank = job.first_rank(layout.host_index) + local
    devices = ",".join(layout.devices.per_rank[local])
    selected = layout.devices.per_rank if layout.devices.gpu else layout.devices.selected
    # In the order of Paddle's table; the rest follows.
    variables = {
        "PADDLE_CURRENT_ENDPOINT": job.all[rank],
        "PADDLE_TRAINERS_NUM": common["PADDLE_TRAINERS_NUM"],
        "PADDLE_TRAINER_ENDPOINTS": common["PADDLE_TRAINER_ENDPOINTS"],
        **({} if selected is None else {"FLAGS_selected_gpus": ",".join(selected[local])}),
        "PADDLE_TRAINER_ID": str(rank),
    }
    shown = tuple(variables)
    variables |= {
        **common,
        "PADDLE_RANK_IN_NODE": str(local),
        "PADDLE_LOCAL_DEVICE_IDS": devices,
        "RANK": str(rank),
        "LOCAL_RANK": str(local),
    }
    if rank == 0 and store is not None:
        variables["ARGOSY_STORE_FD"] = str(store.fileno())
    inherited = {k: v for k, v in layout.environ.items() if k not in NOT_INHERITED}
    return ProcessSpec(rank, local, inherited | variables, shown)


def table(rank: ProcessSpec) -> str:
    """The variables of a rank in the format of Paddle's launcher."""
    rows = [(name, rank.environ[name]) for name in rank.shown]
    width = max(40, *(len(name) for name, _ in rows))
    edge, rule = (f"    +{c * (width + 47)}+" for c in "=-")
    lines = [
        f"    |{name:>{width}}  {'... ' + value[-41:] if len(value) >= 45 else value:^45}|"
        for name, value in [("Distributed Envs", "Value"), *rows]
    ]
    return "\n".join(["", edge, lines[0], rule, *lines[1:], edge, ""])
