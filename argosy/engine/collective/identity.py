"""Rank, size and rendezvous address of this process, read from the launcher's environment."""

# SPDX-License-Identifier: Apache-2.0
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from argosy.engine import env
from argosy.engine.errors import ConfigError
from argosy.engine.net import Endpoint, endpoint_list, first_host, host_of

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_DEFAULT_PORT = 29500  # torchrun's
# Ports derived from a job's id: below the ephemeral ports of the kernel (from 32768 on Linux).
_FIRST_JOB_PORT, _NUM_JOB_PORTS = 12000, 20000


@dataclass(frozen=True)
class Identity:
    """The rank of one process in its job, and what it needs to connect to the others."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    endpoints: tuple[str, ...] = ()
    """host:port of every rank, in order; empty if the launcher gave none."""
    master: str = "127.0.0.1:0"
    """host:port of the rendezvous store."""
    hosts_store: bool = True
    """Whether this process hosts the store; with torchrun's agent store no rank does."""
    launcher: str = "none"
    """fleetrun, torchrun, mpirun, srun, or none."""
    restart: int = 0
    """How often the launcher has restarted the job."""
    token: str = ""
    """The secret of the job, or empty."""


def read(environ: Mapping[str, str] | None = None) -> Identity:
    """Read the identity from the variables of fleetrun, torchrun, mpirun or srun; without a launcher, rank 0 of 1."""
    source = env.variables() if environ is None else environ
    launched = env.launched(source)
    endpoints = _endpoints(source, launched) if launched.launcher == "fleetrun" else ()
    local_rank, local_size = _local(source, launched, endpoints)
    agent_store = launched.launcher == "torchrun" and env.flag("TORCHELASTIC_USE_AGENT_STORE", environ=source)
    return Identity(
        rank=launched.rank,
        size=launched.size,
        local_rank=local_rank,
        local_size=local_size,
        endpoints=endpoints,
        master=endpoints[0] if endpoints else _master(source, launched, local_size),
        hosts_store=launched.rank == 0 and not agent_store,
        launcher=launched.launcher,
        restart=env.number("TORCHELASTIC_RESTART_COUNT", source),
        token=source.get("ARGOSY_JOB_TOKEN", ""),
    )


def _endpoints(source: Mapping[str, str], launched: env.Launched) -> tuple[str, ...]:
    endpoints = endpoint_list(source.get("PADDLE_TRAINER_ENDPOINTS", ""), "PADDLE_TRAINER_ENDPOINTS")
    if not endpoints or env.is_server(source):
        return endpoints
    if len(endpoints) != launched.size:
        raise ConfigError(
            f"PADDLE_TRAINER_ENDPOINTS has {len(endpoints)} endpoints and PADDLE_TRAINERS_NUM is {launched.size}; "
            "they must agree: set both, or start with fleetrun"
        )
    current = source.get("PADDLE_CURRENT_ENDPOINT")
    if current is not None and current != endpoints[launched.rank]:
        raise ConfigError(
            f"PADDLE_CURRENT_ENDPOINT={current!r}, but PADDLE_TRAINER_ID={launched.rank} is {endpoints[launched.rank]} "
            "in PADDLE_TRAINER_ENDPOINTS; they must agree: unset the first, or start with fleetrun"
        )
    return endpoints


def _local(source: Mapping[str, str], launched: env.Launched, endpoints: tuple[str, ...]) -> tuple[int, int]:
    """Rank and number of ranks on this host: as the launcher gave them, else derived from the endpoints."""
    rank, size = launched.local_rank, launched.local_size
    if launched.launcher == "srun":
        size = _srun_local_size(source)
    if (rank is None or size is None) and endpoints and not env.is_server(source):
        hosts = [host_of(e) for e in endpoints]
        host = hosts[launched.rank]
        rank = hosts[: launched.rank].count(host) if rank is None else rank
        size = hosts.count(host) if size is None else size
    if rank is None or size is None:
        # Started by hand: with a loopback master all ranks are on this host; else assume one rank per host.
        default_master = _LOOPBACK[0] if launched.launcher in ("fleetrun", "torchrun") else ""
        is_single_host = launched.size == 1 or source.get("MASTER_ADDR", default_master) in _LOOPBACK
        rank, size = (
            (launched.rank, launched.size) if is_single_host else (rank or 0, size or (rank or 0) + 1)
        )
    if not (rank < size <= launched.size and rank <= launched.rank):
        raise ConfigError(
            f"local rank {rank} of {size} on this host does not fit rank {launched.rank} of {launched.size} "
            f"({launched.launcher}'s variables); unset those of the local rank, or start with fleetrun"
        )
    return rank, size


def _srun_local_size(source: Mapping[str, str]) -> int | None:
    """Tasks on this node, from a list such as `2(x3),1` in the order of the nodes."""
    text = source.get("SLURM_STEP_TASKS_PER_NODE") or source.get("SLURM_TASKS_PER_NODE")
    if text is None:
        return None
    counts: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if match is None:
            raise ConfigError(
                f"SLURM_STEP_TASKS_PER_NODE={text!r} is not a list such as 2(x3),1; start with srun"
            )
        counts += [int(match[1])] * int(match[2] or 1)
    node = env.number("SLURM_NODEID", source)
    if node >= len(counts):
        raise ConfigError(
            f"SLURM_NODEID={node}, but the step has {len(counts)} nodes ({text}); start with srun"
        )
    return counts[node]


def _master(source: Mapping[str, str], launched: env.Launched, local_size: int) -> str:
    """host:port of the store: MASTER_ADDR and MASTER_PORT, each with a default that depends on the launcher."""
    if launched.launcher == "none":
        return Identity.master
    host = source.get("MASTER_ADDR") or _master_host(source, launched, local_size)
    port = env.number("MASTER_PORT", source, default=_job_port(source, launched.launcher))
    if not 0 < port < 65536:
        raise ConfigError(f"MASTER_PORT={port} is not a port; use 1 to 65535")
    return str(Endpoint(host.removeprefix("[").removesuffix("]"), port))


def _master_host(source: Mapping[str, str], launched: env.Launched, local_size: int) -> str:
    if launched.size == local_size or launched.launcher in ("fleetrun", "torchrun"):
        return _LOOPBACK[0]
    nodelist = source.get("SLURM_STEP_NODELIST") or source.get("SLURM_NODELIST")
    if launched.launcher == "srun" and nodelist:
        return first_host(nodelist)
    raise ConfigError(
        f"{launched.launcher} started {launched.size} ranks, {local_size} of them on this host, and gives no "
        "address of rank 0; set MASTER_ADDR to its host (mpirun -x MASTER_ADDR=host0), or use fleetrun --ips"
    )


def _job_port(source: Mapping[str, str], launcher: str) -> int:
    """A port derived from the job's id, so that two jobs on one host seldom share it; torchrun's default without id."""
    names = {"srun": ("SLURM_JOB_ID", "SLURM_STEP_ID"), "mpirun": ("SLURM_JOB_ID", "PMIX_NAMESPACE")}
    ids = [source[name] for name in names.get(launcher, ()) if name in source]
    if not ids:
        return _DEFAULT_PORT
    return _FIRST_JOB_PORT + zlib.crc32("/".join(ids).encode()) % _NUM_JOB_PORTS
