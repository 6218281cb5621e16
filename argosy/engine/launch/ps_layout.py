"""Who the servers and workers of a job are, which of them this host starts, and the environment of each."""

# SPDX-License-Identifier: Apache-2.0
import os
from collections.abc import Mapping
from dataclasses import dataclass

from argosy.engine.errors import ConfigError
from argosy.engine.launch import hosts, layout, ports
from argosy.engine.launch.configuration import Configuration
from argosy.engine.launch.layout import Rank, num_cores

_DEFAULT_START_PORT = 6170
_LOOPBACK = "127.0.0.1"
STATE = "server_state"
# Of an outer job, or of the collective mode: a server or worker must not take them for its own.
_NOT_INHERITED = (
    *("PADDLE_TRAINER_ID", "PADDLE_CURRENT_ENDPOINT", "PADDLE_RANK_IN_NODE", "PADDLE_LOCAL_DEVICE_IDS"),
    *("PADDLE_WORLD_DEVICE_IDS", "PADDLE_TRAINING_ROLE", "PADDLE_HETER_TRAINER_IP_PORT_LIST"),
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK", "GROUP_WORLD_SIZE"),
    *("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"),
    *layout.NOT_INHERITED,
)


@dataclass(frozen=True)
class PsLayout:
    """What stays the same over all restarts; a server that comes back has its old endpoint."""

    config: Configuration
    environ: Mapping[str, str]
    servers: tuple[str, ...]
    """The endpoints of all servers, on all hosts."""
    workers: tuple[str, ...]
    own: frozenset[str]
    """Those of the addresses that are this host."""
    token: str
    http_endpoint: str | None
    state: str | None
    """The directory in which servers keep what they need to go on."""

    @property
    def several_hosts(self) -> bool:
        return any(e.rpartition(":")[0] not in self.own for e in (*self.servers, *self.workers))

    def endpoints(self, role: str) -> tuple[str, ...]:
        """Of all servers, or of all workers."""
        return self.servers if role == "server" else self.workers

    def processes(self, role: str) -> tuple[Rank, ...]:
        """Those of this role that this host starts."""
        return tuple(self.process(role, i, restart=0) for i in self._local(role))

    def process(self, role: str, index: int, restart: int) -> Rank:
        """A server or worker and its environment; `restart`: how often it was started anew."""
        local = self._local(role)
        host, _, port = self.endpoints(role)[index].rpartition(":")
        own = self._paddles() | {"POD_IP": host, "PADDLE_PORT": port}
        if role == "server":
            own["TRAINING_ROLE"] = "PSERVER"
        else:
            own |= {"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": str(index)}
        shown = tuple(own)
        own |= self._argosys() | {"ARGOSY_RESTART": str(restart)}
        left_out = {*_NOT_INHERITED, *(layout.TIMELINE if role == "server" else ())}
        if role == "worker":
            own |= {"PADDLE_RANK_IN_NODE": str(local.index(index)), "LOCAL_WORLD_SIZE": str(len(local))}
            own |= layout.timeline_variables(self.config)
        inherited = {k: v for k, v in self.environ.items() if k not in left_out}
        return Rank(index, local.index(index), inherited | own, shown, role)

    @property
    def dead_workers(self) -> str:
        """The file that tells the servers of this host which workers are dropped, a number in each line."""
        return os.path.abspath(os.path.join(self.config.log_dir, "dead_workers"))

    def _local(self, role: str) -> list[int]:
        return [i for i, e in enumerate(self.endpoints(role)) if e.rpartition(":")[0] in self.own]

    def _paddles(self) -> dict[str, str]:
        """What Paddle gives every process, in the order of its table."""
        own = {
            "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(self.servers),
            "PADDLE_TRAINER_ENDPOINTS": ",".join(self.workers),
            "PADDLE_TRAINERS_NUM": str(len(self.workers)),
            "PADDLE_WITH_GLOO": self.environ.get("PADDLE_WITH_GLOO", "0"),
            "PADDLE_GLOO_RENDEZVOUS": "3",
        }
        return own | ({"PADDLE_GLOO_HTTP_ENDPOINT": self.http_endpoint} if self.http_endpoint else {})

    def _argosys(self) -> dict[str, str]:
        """What Argosy adds for every process of this host."""
        num = len(self._local("server")) + len(self._local("worker"))
        own = {"ARGOSY_JOB_TOKEN": self.token, "ARGOSY_DEAD_WORKER": self.config.dead_worker}
        own |= layout.variables_of_torch(self.environ, max(1, num_cores() // num))
        own |= layout.variables_of_options(self.config)
        if not self.several_hosts:
            own["ARGOSY_SERVER_STAYS"] = "1"  # this launcher sees all workers, and tells servers to end
        if self.state is not None:
            own["ARGOSY_SERVER_STATE"] = self.state
        if self.config.encrypt:
            own["ARGOSY_PS_ENCRYPT"] = "1"
        if self.config.dead_worker == "drop":
            own["ARGOSY_DEAD_WORKERS"] = self.dead_workers
        return own


def plan(config: Configuration, environ: Mapping[str, str]) -> PsLayout:
    """Choose the ports and check the configuration against this host; nothing is started."""
    layout.check_timeline(config)
    servers, workers = _endpoints(config, environ)
    own, resolved = hosts.own_of((*servers, *workers), config.host or _pod_ip(environ, (*servers, *workers)))
    servers, workers = resolved[: len(servers)], resolved[len(servers) :]
    if twice := sorted({e for e in resolved if resolved.count(e) > 1}):
        raise ConfigError(
            f"{', '.join(twice)} is the endpoint of two processes; give every server and worker a port of its own"
        )
    several = any(e.rpartition(":")[0] not in own for e in resolved)
    token = environ.get("ARGOSY_JOB_TOKEN")
    if several and not token:
        raise ConfigError(
            "ARGOSY_JOB_TOKEN is not set, and servers on several hosts must know who belongs to the job; "
            "export the same secret on each host, for example what `openssl rand -hex 16` prints"
        )
    _check_ports(servers, own)
    http = _http_endpoint(config, servers[0], several)
    return PsLayout(
        *(config, environ, servers, workers, own, token or os.urandom(16).hex(), http, _state(config))
    )


def _pod_ip(environ: Mapping[str, str], endpoints: tuple[str, ...]) -> str | None:
    """POD_IP says which host this is; where there is only one, nobody needs to be told."""
    if len({e.rpartition(":")[0] for e in endpoints}) == 1:
        return None
    return environ.get("POD_IP")


def _endpoints(config: Configuration, environ: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The endpoints as the user gave them, or chosen: servers first, workers behind them."""
    num_servers = config.server_num or len(config.servers)
    num_workers = config.worker_num or len(config.workers)
    start = layout.start_port(config, environ, num_servers + num_workers)
    if start is None:
        free = ports.lasting_ports(_LOOPBACK, num_servers + num_workers)
    else:
        free = list(range(start, start + num_servers + num_workers))
    servers = config.servers or tuple(f"{_LOOPBACK}:{port}" for port in free[:num_servers])
    workers = config.workers or tuple(f"{_LOOPBACK}:{port}" for port in free[num_servers:])
    first = (_DEFAULT_START_PORT if start is None else start) + num_servers
    workers = tuple(w if ":" in w else f"{w}:{first + i}" for i, w in enumerate(workers))
    return servers, workers


def _check_ports(servers: tuple[str, ...], own: frozenset[str]) -> None:
    """Raise if a server of this host could not listen; a worker's port may never be used."""
    for endpoint in servers:
        host, _, port = endpoint.rpartition(":")
        if host in own:
            ports.listen(host, int(port), option="--servers or --start_port").close()


def _http_endpoint(config: Configuration, first_server: str, several: bool) -> str | None:
    host = first_server.rpartition(":")[0]
    if config.http_port is not None:
        return f"{host}:{config.http_port}"
    # Several hosts cannot agree on a free port.
    return None if several else f"{host}:{ports.free_ports(host, 1)[0]}"


def _state(config: Configuration) -> str | None:
    if config.server_state is not None:
        return os.path.abspath(config.server_state)
    return os.path.abspath(os.path.join(config.log_dir, STATE)) if config.max_restarts else None
