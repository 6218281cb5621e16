"""Role makers: whether this process is a worker or a server, which one, and who the others are.

`PaddleCloudRoleMaker` asks the launcher's environment, `UserDefinedRoleMaker` its arguments. Both read
when they are first asked, so that a mistake shows in `fleet.init` and not at an import.
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
from argosy.framework import checks
from argosy.framework.missing import missing

__all__ = ["PaddleCloudRoleMaker", "Role", "RoleMakerBase", "UserDefinedRoleMaker"]

_ALONE = ("127.0.0.1:6170",)  # Paddle's endpoint of a process that no launcher started


class Role:
    """What a process can be."""

    WORKER = 1
    SERVER = 2
    HETER_WORKER = 3
    ALL = 4


_ROLES = {Role.WORKER: "WORKER", Role.SERVER: "SERVER"}


@dataclass(frozen=True)
class Place:
    """All that a role maker found out."""

    role: int
    index: int
    """The number of this process among those of its role."""
    identity: Identity
    """Its place in the group of the workers; of a server: a process alone."""
    worker_num: int
    workers: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    distributed: bool = True
    """False for a process that no launcher started."""


class RoleMakerBase:
    """The questions that fleet asks; each subclass says in `_find_place` where the answers come from.

    Paddle's Fleet asks with a leading underscore, its 1.x scripts without: both are there.
    """

    def __init__(self, is_collective: bool = False) -> None:
        if not isinstance(is_collective, bool):
            raise ConfigError(f"is_collective is {is_collective!r}; use True (collective) or False (servers)")
        self._is_collective = is_collective

    def _find_place(self) -> Place:
        raise NotImplementedError(f"{type(self).__name__} must define _find_place")

    @cached_property
    def _place(self) -> Place:
        return self._find_place()

    def generate_role(self) -> None:
        """Find out everything now; mistakes are raised here."""
        _ = self._place

    def identity(self) -> Identity:
        """This process's place in the group of the workers, for `collective.connect`."""
        return self._place.identity

    def is_worker(self) -> bool:
        return self._place.role == Role.WORKER

    def is_server(self) -> bool:
        """Whether this process serves parameters."""
        return self._place.role == Role.SERVER

    def is_heter_worker(self) -> bool:
        """False: there are none."""
        return False

    def is_first_worker(self) -> bool:
        return self.is_worker() and self._place.index == 0

    def is_non_distributed(self) -> bool:
        """Whether this process is alone because no launcher started it."""
        return not self._place.distributed

    def role_id(self) -> int:
        """The number of this process among those of its role."""
        return self._place.index

    def worker_index(self) -> int:
        return self._place.index

    def server_index(self) -> int:
        return self._place.index

    def worker_num(self) -> int:
        return self._place.worker_num

    def server_num(self) -> int:
        return len(self._place.servers)

    def heter_worker_num(self) -> int:
        """0: there are none."""
        return 0

    def node_num(self) -> int:
        """Hosts of the workers (of the servers, if the workers have no endpoints)."""
        endpoints = self._place.workers or self._place.servers
        if endpoints:
            return len({endpoint.rpartition(":")[0] for endpoint in endpoints})
        found = self._place.identity
        return -(-found.size // found.local_size)

    def get_trainer_endpoints(self) -> list[str]:
        """host:port of every worker; empty under launchers that give none (torchrun, mpirun, srun)."""
        return list(self._place.workers)

    def get_pserver_endpoints(self) -> list[str]:
        return list(self._place.servers)

    def get_heter_worker_endpoints(self) -> list[str]:
        """Empty: there are none."""
        return []

    def to_string(self) -> str:
        found = self._place
        return (
            f"role: {_ROLES[found.role]}, current_id: {found.index}, "
            f"worker_endpoints: {list(found.workers)}, server_endpoints: {list(found.servers)}"
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
    """The role that the launcher's environment gives: fleetrun's, or in collective mode any launcher's.

    `init_gloo` is taken for Paddle's sake: groups of workers are made on first use either way.
    """

    def __init__(self, is_collective: bool = False, **kwargs: Any) -> None:
        super().__init__(is_collective)
        if unknown := sorted(kwargs.keys() - {"init_gloo"}):
            raise ConfigError(
                f"PaddleCloudRoleMaker has no argument {unknown[0]!r}; it takes is_collective and init_gloo: "
                "for a role of your own use UserDefinedRoleMaker"
            )

    def _find_place(self) -> Place:
        source = env.variables()
        return _collective_place(source) if self._is_collective else _server_place(source)


class UserDefinedRoleMaker(RoleMakerBase):
    """The role that the arguments give.

    `init_gloo` is taken for Paddle's sake: groups of workers are made on first use either way.
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

    def _find_place(self) -> Place:
        num = self._num or len(self._workers)
        if num == 0:
            raise ConfigError("UserDefinedRoleMaker knows no workers; give worker_endpoints or worker_num")
        if self._workers and len(self._workers) != num:
            raise ConfigError(
                f"worker_num is {num} and worker_endpoints has {len(self._workers)}; give one of the two"
            )
        self._check_role(num)
        identity = self._worker_identity(num) if self._role == Role.WORKER else Identity()
        return Place(self._role, self._current_id, identity, num, self._workers, self._servers)

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
        # Without endpoints the ranks meet where the launcher says; the numbers are the user's.
        found = identities.read()
        if (found.rank, found.size) == (self._current_id, num):
            return found
        if num == 1 or not self._is_collective:  # else they meet on the servers
            return Identity()
        raise ConfigError(
            f"worker {self._current_id} of {num} without worker_endpoints, and the launcher "
            f"({found.launcher}) says rank {found.rank} of {found.size}; give worker_endpoints"
        )


def _from_endpoints(rank: int, endpoints: tuple[str, ...]) -> Identity:
    """The identity of one of these endpoints; what the launcher knows besides (token, restarts) is kept."""
    hosts = [endpoint.rpartition(":")[0] for endpoint in endpoints]
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
    found = tuple(endpoints or ())
    identities.check_endpoints(found, what)
    return found


def _collective_place(source: Mapping[str, str]) -> Place:
    for name in ("PADDLE_TRAINING_ROLE", "TRAINING_ROLE"):
        if source.get(name, "TRAINER") != "TRAINER":
            raise ConfigError(
                f"{name}={source[name]!r} in a collective job, where all are TRAINER; "
                "unset it, or use is_collective=False for a job with servers"
            )
    found = identities.read(source)
    alone = found.launcher == "none"
    endpoints = found.endpoints or (_ALONE if found.size == 1 else ())
    return Place(Role.WORKER, found.rank, found, found.size, endpoints, distributed=not alone)


def _server_place(source: Mapping[str, str]) -> Place:
    """A job with parameter servers; without their list this process trains alone, as in Paddle."""
    servers = _endpoints_of(source, "PADDLE_PSERVERS_IP_PORT_LIST")
    if not servers:
        return _serverless_place(source)
    num = _required(source, "PADDLE_TRAINERS_NUM")
    if not num.isdecimal() or int(num) == 0:
        raise ConfigError(f"PADDLE_TRAINERS_NUM={num!r} is no number of trainers; use 1 or more")
    role, index = _role_and_index(source, servers)
    if role == Role.WORKER and index >= int(num):
        raise ConfigError(f"PADDLE_TRAINER_ID={index} of PADDLE_TRAINERS_NUM={num}; use 0 to {int(num) - 1}")
    return Place(
        role=role,
        index=index,
        identity=identities.read(source) if role == Role.WORKER else Identity(),
        worker_num=int(num),
        workers=_endpoints_of(source, "PADDLE_TRAINER_ENDPOINTS"),
        servers=servers,
    )


def _serverless_place(source: Mapping[str, str]) -> Place:
    rank, size = env.rank_and_size(source)
    if size > 1:
        raise ConfigError(
            f"this is rank {rank} of {size}, but the role maker is for parameter servers and "
            "PADDLE_PSERVERS_IP_PORT_LIST is not set; use fleet.init(is_collective=True), or start the job "
            "with fleetrun --server_num and --worker_num"
        )
    return Place(Role.WORKER, 0, Identity(), 1, _ALONE, distributed=False)


def _role_and_index(source: Mapping[str, str], servers: tuple[str, ...]) -> tuple[int, int]:
    role = _required(source, "TRAINING_ROLE")
    if role == "TRAINER":
        _required(source, "PADDLE_TRAINER_ID")
        return Role.WORKER, env.number("PADDLE_TRAINER_ID", source)
    if role == "PSERVER":
        return Role.SERVER, _own_index(source, servers)
    if role == "HETER_TRAINER":
        raise ConfigError(f"TRAINING_ROLE={role!r}: heter workers are not supported; use TRAINER or PSERVER")
    raise ConfigError(f"TRAINING_ROLE={role!r}; use TRAINER or PSERVER, or start with fleetrun")


def _own_index(source: Mapping[str, str], servers: tuple[str, ...]) -> int:
    own = f"{_required(source, 'POD_IP')}:{_required(source, 'PADDLE_PORT')}"
    if own not in servers:
        raise ConfigError(
            f"POD_IP and PADDLE_PORT say {own}, which is not in "
            f"PADDLE_PSERVERS_IP_PORT_LIST={','.join(servers)!r}; add it to the list, or start with fleetrun"
        )
    return servers.index(own)


def _required(source: Mapping[str, str], name: str) -> str:
    if name not in source:
        raise ConfigError(
            f"{name} is not set, but a job with PADDLE_PSERVERS_IP_PORT_LIST needs it; "
            "set it, or start with fleetrun"
        )
    return source[name]


def _endpoints_of(source: Mapping[str, str], name: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in source.get(name, "").split(",") if part.strip())
    identities.check_endpoints(found, name)
    return found


__getattr__ = missing(__name__, globals())
