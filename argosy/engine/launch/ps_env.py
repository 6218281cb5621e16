"""Endpoints and environment variables of the servers and workers of a job, and which of them this host starts."""

# SPDX-License-Identifier: Apache-2.0
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from argosy.engine.errors import ConfigError
from argosy.engine.launch import hosts, ports, rank_env
from argosy.engine.launch.configuration import Configuration, num_cores
from argosy.engine.launch.rank_env import ProcessSpec
from argosy.engine.net import Endpoint, has_port, host_of, without_brackets

_DEFAULT_START_PORT = 6170
_LOOPBACK, _LOOPBACK_IPV6 = "127.0.0.1", "::1"
STATE = "server_state"
# Set by an outer job, or for collective mode: a server or worker must not inherit them.
_NOT_INHERITED = (
    *("PADDLE_TRAINER_ID", "PADDLE_CURRENT_ENDPOINT", "PADDLE_RANK_IN_NODE", "PADDLE_LOCAL_DEVICE_IDS"),
    *("PADDLE_WORLD_DEVICE_IDS", "PADDLE_TRAINING_ROLE", "PADDLE_HETER_TRAINER_IP_PORT_LIST"),
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK", "GROUP_WORLD_SIZE"),
    *("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"),
    *rank_env.NOT_INHERITED,
)


@dataclass(frozen=True)
class PsLayout:
    """The part of a job that does not change with restarts; a restarted process keeps its endpoint."""

    config: Configuration
    environ: Mapping[str, str]
    servers: tuple[str, ...]
    """The endpoints of all servers, on all hosts."""
    workers: tuple[str, ...]
    local: frozenset[str]
    """The endpoints of the processes that this launcher starts."""
    token: str
    http_endpoint: str | None
    state: str | None
    """The directory in which servers store their state, to recover from it."""
    job: str = field(default_factory=lambda: os.urandom(8).hex())
    """A random id of this launch: a server that this launcher restarts has the same, one of the next launch has not."""

    @property
    def several_hosts(self) -> bool:
        return any(e not in self.local for e in (*self.servers, *self.workers))

    @property
    def hosts(self) -> tuple[str, ...]:
        """The addresses of all hosts."""
        return tuple(dict.fromkeys(map(host_of, (*self.servers, *self.workers))))

    def endpoints(self, role: str) -> tuple[str, ...]:
        """The endpoints of all servers, or of all workers."""
        return self.servers if role == "server" else self.workers

    def processes(self, role: str) -> tuple[ProcessSpec, ...]:
        """The processes of this role that this host starts."""
        return tuple(self.process(role, i, restart=0) for i in self._local(role))

    def process(self, role: str, index: int, restart: int) -> ProcessSpec:
        """A server or worker and its environment; `restart`: how often it was restarted."""
        local = self._local(role)
        host, port = Endpoint.parse(self.endpoints(role)[index])
        variables = self._paddle_variables() | {"POD_IP": host, "PADDLE_PORT": str(port)}
        if role == "server":
            variables["TRAINING_ROLE"] = "PSERVER"
        else:
            variables |= {"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": str(index)}
        shown = tuple(variables)
        variables |= self._argosy_variables() | {"ARGOSY_RESTART": str(restart)}
        excluded = {*_NOT_INHERITED, *(rank_env.TIMELINE if role == "server" else ())}
        if role == "worker":
            variables |= {"PADDLE_RANK_IN_NODE": str(local.index(index)), "LOCAL_WORLD_SIZE": str(len(local))}
            variables |= rank_env.timeline_variables(self.config)
        inherited = {k: v for k, v in self.environ.items() if k not in excluded}
        return ProcessSpec(index, local.index(index), inherited | variables, shown, role)

    @property
    def dead_workers(self) -> str:
        """The file in which the servers of this host read which workers are dropped, one number per line."""
        return os.path.abspath(os.path.join(self.config.log_dir, "dead_workers"))

    def _local(self, role: str) -> list[int]:
        return [i for i, e in enumerate(self.endpoints(role)) if e in self.local]

    def _paddle_variables(self) -> dict[str, str]:
        """The variables that Paddle sets for every process, in the order of its table."""
        variables = {
            "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(self.servers),
            "PADDLE_TRAINER_ENDPOINTS": ",".join(self.workers),
            "PADDLE_TRAINERS_NUM": str(len(self.workers)),
            "PADDLE_WITH_GLOO": self.environ.get("PADDLE_WITH_GLOO", "0"),
            "PADDLE_GLOO_RENDEZVOUS": "3",
        }
        return variables | ({"PADDLE_GLOO_HTTP_ENDPOINT": self.http_endpoint} if self.http_endpoint else {})

    def _argosy_variables(self) -> dict[str, str]:
        """The variables that Argosy adds for every process of this host."""
        num = len(self._local("server")) + len(self._local("worker"))
        variables = {"ARGOSY_JOB_TOKEN": self.token, "ARGOSY_DEAD_WORKER": self.config.dead_worker or "end"}
        variables |= rank_env.torch_variables(self.environ, max(1, num_cores() // max(1, num)))
        variables |= rank_env.option_variables(self.config)
        if not self.several_hosts:
            variables["ARGOSY_SERVER_STAYS"] = (
                "1"  # this launcher sees all workers exit, and terminates the servers
            )
        if self.state is not None:
            variables |= {"ARGOSY_SERVER_STATE": self.state, "ARGOSY_JOB_ID": self.job}
            variables["ARGOSY_SERVER_DURABILITY"] = self.config.server_durability or "log"
        if self.config.encrypt:
            variables["ARGOSY_PS_ENCRYPT"] = "1"
        if self.config.dead_worker == "drop":
            variables["ARGOSY_DEAD_WORKERS"] = self.dead_workers
        return variables


def plan(config: Configuration, environ: Mapping[str, str]) -> PsLayout:
    """Choose the ports and check the configuration against this host; nothing is started."""
    rank_env.check_timeline(config)
    servers, workers = _endpoints(config, environ)
    local, resolved = hosts.local_endpoints(
        (*servers, *workers), config.host or _pod_ip(environ, (*servers, *workers))
    )
    servers, workers = resolved[: len(servers)], resolved[len(servers) :]
    if duplicates := sorted({e for e in resolved if resolved.count(e) > 1}):
        raise ConfigError(
            f"{', '.join(duplicates)} is the endpoint of two processes; give every server and worker a separate port"
        )
    local_endpoints = frozenset(e for e in resolved if host_of(e) in local)
    several = len(local_endpoints) < len(resolved)
    hosts.check_interface(config, local, several)
    token = environ.get("ARGOSY_JOB_TOKEN")
    if several and not token:
        raise ConfigError(
            "ARGOSY_JOB_TOKEN is not set, and servers on several hosts need it to authenticate processes; "
            "export the same secret on each host, for example what `openssl rand -hex 16` prints"
        )
    _check_ports(servers, local)
    http = http_endpoint(config, servers[0], several)
    return PsLayout(
        *(config, environ, servers, workers, local_endpoints),
        *(token or os.urandom(16).hex(), http, state_directory(config)),
    )


def _pod_ip(environ: Mapping[str, str], endpoints: tuple[str, ...]) -> str | None:
    """POD_IP, which says which host this is; None if there is only one host."""
    if len({host_of(e) for e in endpoints}) == 1:
        return None
    return environ.get("POD_IP")


def _endpoints(config: Configuration, environ: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The endpoints as the user gave them, or chosen: servers first, then workers."""
    num_servers = config.server_num or len(config.servers)
    num_workers = config.worker_num or len(config.workers)
    start = rank_env.start_port(config, environ, num_servers + num_workers)
    # Processes given by number are on this host; a list besides the number may have its IPv6 address.
    loopback = _LOOPBACK_IPV6 if any("[" in e for e in (*config.servers, *config.workers)) else _LOOPBACK
    if start is None:
        free = ports.stable_ports(loopback, num_servers + num_workers)
    else:
        free = list(range(start, start + num_servers + num_workers))
    servers = config.servers or tuple(str(Endpoint(loopback, port)) for port in free[:num_servers])
    workers = config.workers or tuple(str(Endpoint(loopback, port)) for port in free[num_servers:])
    first = (_DEFAULT_START_PORT if start is None else start) + num_servers
    workers = tuple(
        w if has_port(w) else str(Endpoint(without_brackets(w), first + i)) for i, w in enumerate(workers)
    )
    return servers, workers


def _check_ports(servers: tuple[str, ...], local: frozenset[str]) -> None:
    """Raise if a server of this host could not listen; the port of a worker may never be used."""
    for endpoint in servers:
        host, port = Endpoint.parse(endpoint)
        if host in local:
            ports.listen(host, port, option="--servers or --start_port").close()


def http_endpoint(config: Configuration, first_server: str, several: bool) -> str | None:
    host = host_of(first_server)
    if config.http_port is not None:
        return str(Endpoint(host, config.http_port))
    # Several hosts cannot agree on a free port.
    return None if several else str(Endpoint(host, ports.free_ports(host, 1)[0]))


def state_directory(config: Configuration) -> str | None:
    if config.server_state is not None:
        return os.path.abspath(config.server_state)
    return os.path.abspath(os.path.join(config.log_dir, STATE)) if config.max_restarts else None
