"""Role makers: the role of this process (worker or server), its index, and the endpoints of the job.

`PaddleCloudRoleMaker` reads the launcher's environment, `UserDefinedRoleMaker` its arguments. Both evaluate them on
first use, so that an invalid value raises in `fleet.init` and not on import.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from argosy.engine import env
from argosy.engine.collective import identity as identities
from argosy.engine.collective.identity import Identity
from argosy.engine.errors import ConfigError
from argosy.engine.net import Endpoint, check_endpoints, endpoint_list, host_of
from argosy.framework import checks
from argosy.framework.missing import missing

__all__ = ["PaddleCloudRoleMaker", "Role", "RoleMakerBase", "UserDefinedRoleMaker"]

_SINGLE_PROCESS_ENDPOINTS = ("127.0.0.1:6170",)  # Paddle's endpoint of a process that no launcher started


class Role:
    """The roles that a process can have."""

    WORKER = 1
    SERVER = 2
    HETER_WORKER = 3
    ALL = 4


_ROLES = {Role.WORKER: "WORKER", Role.SERVER: "SERVER"}


@dataclass(frozen=True)
class RoleAssignment:
    """The role of this process and the processes of the job, as a role maker read them."""

    role: int
    index: int
    """The index of this process among the processes of its role."""
    identity: Identity
    """Its rank among the workers; for a server: rank 0 of 1."""
    worker_num: int
    workers: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    distributed: bool = True
    """False if no launcher started this process."""


class RoleMakerBase:
    """The queries that fleet makes; each subclass reads the values in `_read_role`.

    Paddle's Fleet calls the names with a leading underscore, its 1.x scripts those without: both exist.
    """

    def __init__(self, is_collective: bool = False) -> None:
        if not isinstance(is_collective, bool):
            raise ConfigError(f"is_collective is {is_collective!r}; use True (collective) or False (servers)")
        self._is_collective = is_collective

    def _read_role(self) -> RoleAssignment:
        raise NotImplementedError(f"{type(self).__name__} must define _read_role")

    @cached_property
    def _assignment(self) -> RoleAssignment:
        return self._read_role()

    def generate_role(self) -> None:
        """Read the role now; an invalid configuration raises here."""
        _ = self._assignment

    def identity(self) -> Identity:
        """The rank of this process among the workers, for `collective.connect`."""
        return self._assignment.identity

    def is_worker(self) -> bool:
        return self._assignment.role == Role.WORKER

    def is_server(self) -> bool:
        """True if this process is a parameter server."""
        return self._assignment.role == Role.SERVER

    def is_heter_worker(self) -> bool:
        """False: heter workers are not supported."""
        return False

    def is_first_worker(self) -> bool:
        return self.is_worker() and self._assignment.index == 0

    def is_non_distributed(self) -> bool:
        """True if no launcher started this process, so that it trains alone."""
        return not self._assignment.distributed

    def role_id(self) -> int:
        """The index of this process among the processes of its role."""
        return self._assignment.index

    def worker_index(self) -> int:
        return self._assignment.index

    def server_index(self) -> int:
        return self._assignment.index

    def worker_num(self) -> int:
        return self._assignment.worker_num

    def server_num(self) -> int:
        return len(self._assignment.servers)

    def heter_worker_num(self) -> int:
        """0: heter workers are not supported."""
        return 0

    def node_num(self) -> int:
        """The number of hosts of the workers (of the servers, if the workers have no endpoints)."""
        endpoints = self._assignment.workers or self._assignment.servers
        if endpoints:
            return len({host_of(endpoint) for endpoint in endpoints})
        identity = self._assignment.identity
        return -(-identity.size // identity.local_size)

    def get_trainer_endpoints(self) -> list[str]:
        """host:port of every worker; empty under launchers that give none (torchrun, mpirun, srun)."""
        return list(self._assignment.workers)

    def get_pserver_endpoints(self) -> list[str]:
        return list(self._assignment.servers)

    def get_heter_worker_endpoints(self) -> list[str]:
        """Empty: heter workers are not supported."""
        return []

    def to_string(self) -> str:
        role = self._assignment
        return (
            f"role: {_ROLES[role.role]}, current_id: {role.index}, "
            f"worker_endpoints: {list(role.workers)}, server_endpoints: {list(role.servers)}"
        )

    __str__ = to_string

    _generate_role = generate_role
    _is_worker = is_worker
    _is_server = is_server
    _is_heter_worker = is_heter_worker
    _is_first_worker = is_first_worker
    _is_non_distributed = is_non_distributed
    _role_id = role_id
    _worker_index = worker_index
    _server_index = server_index
    _worker_num = worker_num
    _server_num = server_num
    _heter_worker_num = heter_worker_num
    _node_num = node_num
    _get_node_num = node_num
    _get_trainer_endpoints = get_trainer_endpoints
    _get_pserver_endpoints = get_pserver_endpoints
    _get_heter_worker_endpoints = get_heter_worker_endpoints


class PaddleCloudRoleMaker(RoleMakerBase):
    """The role from the launcher's environment: fleetrun's, or in collective mode any supported launcher's.

    `init_gloo` is accepted for compatibility with Paddle; it has no effect: process groups are created on first use.
    """

    def __init__(self, is_collective: bool = False, **kwargs: Any) -> None:
        super().__init__(is_collective)
        if unknown := sorted(kwargs.keys() - {"init_gloo"}):
            raise ConfigError(
                f"PaddleCloudRoleMaker has no argument {unknown[0]!r}; it takes is_collective and init_gloo: "
                "to set the role yourself, use UserDefinedRoleMaker"
            )

    def _read_role(self) -> RoleAssignment:
        source = env.variables()
        return _collective_role(source) if self._is_collective else _server_role(source)


class UserDefinedRoleMaker(RoleMakerBase):
    """The role from the arguments.

    `init_gloo` is accepted for compatibility with Paddle; it has no effect: process groups are created on first use.
    """

    def __init__(
        self,
        is_collective: bool = False,
        init_gloo: bool = False,
        *,
        current_id: int,
        role: int = Role.WORKER,
        worker_endpoints: Sequence[str] | None = None,
        server_endpoints: Sequence[str] | None = None,
        worker_num: int = 0,
    ) -> None:
        super().__init__(is_collective)
        self._current_id = checks.integer("current_id", current_id, least=0)
        self._role = role
        self._workers = _endpoint_list("worker_endpoints", worker_endpoints)
        self._servers = _endpoint_list("server_endpoints", server_endpoints)
        self._num = checks.integer("worker_num", worker_num, least=0)

    def _read_role(self) -> RoleAssignment:
        num = self._num or len(self._workers)
        if num == 0:
            raise ConfigError(
                "UserDefinedRoleMaker was given no workers; give worker_endpoints or worker_num"
            )
        if self._workers and len(self._workers) != num:
            raise ConfigError(
                f"worker_num is {num} and worker_endpoints has {len(self._workers)}; give one of the two"
            )
        self._check_role(num)
        identity = self._worker_identity(num) if self._role == Role.WORKER else Identity()
        return RoleAssignment(self._role, self._current_id, identity, num, self._workers, self._servers)

    def _check_role(self, workers: int) -> None:
        allowed = [Role.WORKER] if self._is_collective else [Role.WORKER, Role.SERVER]
        if self._role not in allowed:
            names = " or ".join(f"Role.{_ROLES[role]}" for role in allowed)
            raise ConfigError(f"role is {self._role!r}; use {names} with is_collective={self._is_collective}")
        if not self._is_collective and not self._servers:
            raise ConfigError("server_endpoints is empty; list the servers, or use is_collective=True")
        num, what = (workers, "workers") if self._role == Role.WORKER else (len(self._servers), "servers")
        if self._current_id >= num:
            raise ConfigError(f"current_id is {self._current_id} of {num} {what}; use 0 to {num - 1}")

    def _worker_identity(self, num: int) -> Identity:
        if self._workers:
            return _from_endpoints(self._current_id, self._workers)
        # Without endpoints the launcher's environment provides the rendezvous; rank and world size are the user's.
        identity = identities.read()
        if (identity.rank, identity.size) == (self._current_id, num):
            return identity
        if num == 1 or not self._is_collective:  # with parameter servers, the rendezvous is on the servers
            return Identity()
        raise ConfigError(
            f"worker {self._current_id} of {num} without worker_endpoints, and the launcher "
            f"({identity.launcher}) says rank {identity.rank} of {identity.size}; give worker_endpoints"
        )


def _from_endpoints(rank: int, endpoints: tuple[str, ...]) -> Identity:
    """The identity of rank `rank` of these endpoints, with the launcher's job token and restart count."""
    hosts = [host_of(endpoint) for endpoint in endpoints]
    return Identity(
        rank=rank,
        size=len(endpoints),
        local_rank=hosts[:rank].count(hosts[rank]),
        local_size=hosts.count(hosts[rank]),
        endpoints=endpoints,
        master=endpoints[0],
        hosts_store=rank == 0,
        restart=env.number("TORCHELASTIC_RESTART_COUNT"),
        token=env.text("ARGOSY_JOB_TOKEN", ""),
    )


def _endpoint_list(what: str, endpoints: Sequence[str] | None) -> tuple[str, ...]:
    if isinstance(endpoints, str) or not all(isinstance(e, str) for e in endpoints or ()):
        raise ConfigError(f"{what} is {endpoints!r}; use a list such as ['127.0.0.1:6170']")
    listed = tuple(endpoints or ())
    check_endpoints(listed, what)
    return listed


def _collective_role(source: Mapping[str, str]) -> RoleAssignment:
    for name in ("PADDLE_TRAINING_ROLE", "TRAINING_ROLE"):
        if source.get(name, "TRAINER") != "TRAINER":
            raise ConfigError(
                f"{name}={source[name]!r} in a collective job, where every process is a TRAINER; "
                "unset it, or use is_collective=False for a job with servers"
            )
    identity = identities.read(source)
    is_single = identity.launcher == "none"
    endpoints = identity.endpoints or (_SINGLE_PROCESS_ENDPOINTS if identity.size == 1 else ())
    return RoleAssignment(
        Role.WORKER, identity.rank, identity, identity.size, endpoints, distributed=not is_single
    )


def _server_role(source: Mapping[str, str]) -> RoleAssignment:
    """The role in a job with parameter servers; without a list of servers this process trains alone, as in Paddle."""
    servers = _endpoints_of(source, "PADDLE_PSERVERS_IP_PORT_LIST")
    if not servers:
        return _role_without_servers(source)
    num = env.trainers_num(source) or _required(source, "PADDLE_TRAINERS_NUM")
    if not num.isdecimal() or int(num) == 0:
        raise ConfigError(f"PADDLE_TRAINERS_NUM={num!r} is not a valid number of trainers; use 1 or more")
    role, index = _role_and_index(source, servers)
    if role == Role.WORKER and index >= int(num):
        raise ConfigError(f"PADDLE_TRAINER_ID={index} of PADDLE_TRAINERS_NUM={num}; use 0 to {int(num) - 1}")
    return RoleAssignment(
        role=role,
        index=index,
        identity=identities.read(source) if role == Role.WORKER else Identity(),
        worker_num=int(num),
        workers=_endpoints_of(source, "PADDLE_TRAINER_ENDPOINTS"),
        servers=servers,
    )


def _role_without_servers(source: Mapping[str, str]) -> RoleAssignment:
    rank, size = env.rank_and_size(source)
    if size > 1:
        raise ConfigError(
            f"this is rank {rank} of {size}, but the role maker is for parameter servers and "
            "PADDLE_PSERVERS_IP_PORT_LIST is not set; use fleet.init(is_collective=True), or start the job "
            "with fleetrun --server_num and --worker_num"
        )
    return RoleAssignment(Role.WORKER, 0, Identity(), 1, _SINGLE_PROCESS_ENDPOINTS, distributed=False)


def _role_and_index(source: Mapping[str, str], servers: tuple[str, ...]) -> tuple[int, int]:
    role = _required(source, "TRAINING_ROLE")
    if role == "TRAINER":
        _required(source, "PADDLE_TRAINER_ID")
        return Role.WORKER, env.number("PADDLE_TRAINER_ID", source)
    if role == "PSERVER":
        return Role.SERVER, _server_index_of(source, servers)
    if role == "HETER_TRAINER":
        raise ConfigError(f"TRAINING_ROLE={role!r}: heter workers are not supported; use TRAINER or PSERVER")
    raise ConfigError(f"TRAINING_ROLE={role!r}; use TRAINER or PSERVER, or start with fleetrun")


def _server_index_of(source: Mapping[str, str], servers: tuple[str, ...]) -> int:
    host, port = _required(source, "POD_IP"), _required(source, "PADDLE_PORT")
    endpoint = str(
        Endpoint.parse(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", "POD_IP and PADDLE_PORT")
    )
    if endpoint not in servers:
        raise ConfigError(
            f"POD_IP and PADDLE_PORT say {endpoint}, which is not in "
            f"PADDLE_PSERVERS_IP_PORT_LIST={','.join(servers)!r}; add it to the list, or start with fleetrun"
        )
    return servers.index(endpoint)


def _required(source: Mapping[str, str], name: str) -> str:
    if name not in source:
        raise ConfigError(
            f"{name} is not set, but a job with PADDLE_PSERVERS_IP_PORT_LIST needs it; "
            "set it, or start with fleetrun"
        )
    return source[name]


def _endpoints_of(source: Mapping[str, str], name: str) -> tuple[str, ...]:
    return endpoint_list(source.get(name, ""), name)


__getattr__ = missing(__name__, globals())
