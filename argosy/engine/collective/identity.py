"""Who this process is in the job and where the ranks meet, read from the launcher's environment."""

# SPDX-License-Identifier: Apache-2.0
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from argosy.engine import env
from argosy.engine.errors import ConfigError

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_DEFAULT_PORT = 29500  # torchrun's
# Ports made from a job's id: below the ports that the kernel hands out itself (32768 on Linux).
_FIRST_JOB_PORT, _NUM_JOB_PORTS = 12000, 20000


@dataclass(frozen=True)
class Identity:
    """The place of one process in its job."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    endpoints: tuple[str, ...] = ()
    """host:port of every rank, in order; empty if the launcher gave none."""
    master: str = "127.0.0.1:0"
    """host:port of the store at which the ranks meet."""
    hosts_store: bool = True
    """Whether this process opens the store; with torchrun's agent store no rank does."""
    launcher: str = "none"
    """fleetrun, torchrun, mpirun, srun, or none."""
    restart: int = 0
    """How often the launcher has restarted the job."""
    token: str = ""
    """The secret of the job, or empty."""


def read(environ: Mapping[str, str] | None = None) -> Identity:
    """The identity that the environment gives: fleetrun's, else torchrun's, mpirun's, srun's, else alone."""
    source = env.variables() if environ is None else environ
    place = env.launched(source)
    endpoints = _endpoints(source, place) if place.launcher == "fleetrun" else ()
    local_rank, local_size = _local(source, place, endpoints)
    agent_store = place.launcher == "torchrun" and env.flag("TORCHELASTIC_USE_AGENT_STORE", environ=source)
    return Identity(
        rank=place.rank,
        size=place.size,
        local_rank=local_rank,
        local_size=local_size,
        endpoints=endpoints,
        master=endpoints[0] if endpoints else _master(source, place, local_size),
        hosts_store=place.rank == 0 and not agent_store,
        launcher=place.launcher,
        restart=env.number("TORCHELASTIC_RESTART_COUNT", source),
        token=source.get("ARGOSY_JOB_TOKEN", ""),
    )


def split_endpoint(endpoint: str, where: str) -> tuple[str, int]:
    """Host and port of `host:port`; `where` names the variable or argument that it came from."""
    host, colon, port = endpoint.strip().rpartition(":")
    if not (host and colon and port.isdecimal() and int(port) < 65536):
        raise ConfigError(
            f"{where} has {endpoint!r}, which is no host:port; write for example 127.0.0.1:6170"
        )
    return host, int(port)


def check_endpoints(endpoints: tuple[str, ...], where: str) -> None:
    """Refuse an endpoint that is none, and one that is there twice."""
    for endpoint in endpoints:
        split_endpoint(endpoint, where)
        if endpoints.count(endpoint) > 1:
            raise ConfigError(f"{where} has {endpoint} twice; give every rank its own port")


def first_host(nodelist: str) -> str:
    """The first host of SLURM's list: `node[01-03,7],b2` begins with `node01`."""
    first = re.sub(r"\[([^\[\],-]*)[^\[\]]*\]", r"\1", nodelist.strip()).split(",")[0]
    if not first or "[" in first or "]" in first:
        raise ConfigError(
            f"SLURM_NODELIST={nodelist!r} is no list of hosts; set MASTER_ADDR to the host of rank 0"
        )
    return first


def _endpoints(source: Mapping[str, str], place: env.Launched) -> tuple[str, ...]:
    text = source.get("PADDLE_TRAINER_ENDPOINTS", "")
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found or env.is_server(source):
        return found
    check_endpoints(found, "PADDLE_TRAINER_ENDPOINTS")
    if len(found) != place.size:
        raise ConfigError(
            f"PADDLE_TRAINER_ENDPOINTS has {len(found)} endpoints and PADDLE_TRAINERS_NUM is {place.size}; "
            "they must agree: set both, or start with fleetrun"
        )
    own = source.get("PADDLE_CURRENT_ENDPOINT")
    if own is not None and own != found[place.rank]:
        raise ConfigError(
            f"PADDLE_CURRENT_ENDPOINT={own!r}, but PADDLE_TRAINER_ID={place.rank} is {found[place.rank]} "
            "in PADDLE_TRAINER_ENDPOINTS; they must agree: unset the first, or start with fleetrun"
        )
    return found


def _local(source: Mapping[str, str], place: env.Launched, endpoints: tuple[str, ...]) -> tuple[int, int]:
    """Rank and number of ranks on this host, from what the launcher gave and what follows from it."""
    rank, size = place.local_rank, place.local_size
    if place.launcher == "srun":
        size = _srun_local_size(source)
    if (rank is None or size is None) and endpoints and not env.is_server(source):
        hosts = [e.rpartition(":")[0] for e in endpoints]
        own = hosts[place.rank]
        rank = hosts[: place.rank].count(own) if rank is None else rank
        size = hosts.count(own) if size is None else size
    if rank is None or size is None:
        # Started by hand: on the loopback all ranks are here; else one rank per host is all we know.
        by_default = _LOOPBACK[0] if place.launcher in ("fleetrun", "torchrun") else ""
        together = place.size == 1 or source.get("MASTER_ADDR", by_default) in _LOOPBACK
        rank, size = (place.rank, place.size) if together else (rank or 0, size or (rank or 0) + 1)
    if not (rank < size <= place.size and rank <= place.rank):
        raise ConfigError(
            f"local rank {rank} of {size} on this host does not fit rank {place.rank} of {place.size} "
            f"({place.launcher}'s variables); unset those of the local rank, or start with fleetrun"
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
                f"SLURM_STEP_TASKS_PER_NODE={text!r} is no list such as 2(x3),1; start with srun"
            )
        counts += [int(match[1])] * int(match[2] or 1)
    node = env.number("SLURM_NODEID", source)
    if node >= len(counts):
        raise ConfigError(
            f"SLURM_NODEID={node}, but the step has {len(counts)} nodes ({text}); start with srun"
        )
    return counts[node]


def _master(source: Mapping[str, str], place: env.Launched, local_size: int) -> str:
    """host:port of the store: MASTER_ADDR and MASTER_PORT, each replaced by what the launcher lets us know."""
    if place.launcher == "none":
        return Identity.master
    host = source.get("MASTER_ADDR") or _master_host(source, place, local_size)
    port = env.number("MASTER_PORT", source, default=_job_port(source, place.launcher))
    if not 0 < port < 65536:
        raise ConfigError(f"MASTER_PORT={port} is no port; use 1 to 65535")
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def _master_host(source: Mapping[str, str], place: env.Launched, local_size: int) -> str:
    if place.size == local_size or place.launcher in ("fleetrun", "torchrun"):
        return _LOOPBACK[0]
    nodelist = source.get("SLURM_STEP_NODELIST") or source.get("SLURM_NODELIST")
    if place.launcher == "srun" and nodelist:
        return first_host(nodelist)
    raise ConfigError(
        f"{place.launcher} started {place.size} ranks, {local_size} of them on this host, and does not tell "
        "where rank 0 is; set MASTER_ADDR to its host (mpirun -x MASTER_ADDR=host0), or use fleetrun --ips"
    )


def _job_port(source: Mapping[str, str], launcher: str) -> int:
    """A port that two jobs on one host seldom share: made from the job's id where there is one."""
    names = {"srun": ("SLURM_JOB_ID", "SLURM_STEP_ID"), "mpirun": ("SLURM_JOB_ID", "PMIX_NAMESPACE")}
    ids = [source[name] for name in names.get(launcher, ()) if name in source]
    if not ids:
        return _DEFAULT_PORT
    return _FIRST_JOB_PORT + zlib.crc32("/".join(ids).encode()) % _NUM_JOB_PORTS
