"""Role makers with the arguments of 1.x, in their order."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

from argosy.distributed.fleet.base import role_maker as fleet
from argosy.distributed.fleet.base.role_maker import PaddleCloudRoleMaker, Role, RoleMakerBase
from argosy.engine.errors import ConfigError, nearest
from argosy.engine.log import logger
from argosy.framework.missing import missing

__all__ = [
    "GeneralRoleMaker",
    "PaddleCloudRoleMaker",
    "Role",
    "RoleMakerBase",
    "UserDefinedCollectiveRoleMaker",
    "UserDefinedRoleMaker",
]

_RENDEZVOUS = (
    "path",
    "hdfs_name",
    "hdfs_ugi",
    "iface",
    "prefix",
    "init_timeout_seconds",
    "run_timeout_seconds",
    "http_ip_port",
)
"""Arguments of Paddle's rendezvous by a shared directory, HDFS or HTTP."""


class UserDefinedRoleMaker(fleet.UserDefinedRoleMaker):
    """A worker or a server of a job with parameter servers."""

    def __init__(
        self,
        current_id: int = 0,
        role: int = Role.WORKER,
        worker_num: int = 0,
        server_endpoints: Sequence[str] | None = None,
        **rendezvous: Any,
    ) -> None:
        """`rendezvous`: `path=` and the like have no effect: the workers communicate through the servers."""
        _check_rendezvous("UserDefinedRoleMaker", rendezvous)
        super().__init__(
            current_id=current_id, role=role, worker_num=worker_num, server_endpoints=server_endpoints
        )


class UserDefinedCollectiveRoleMaker(fleet.UserDefinedRoleMaker):
    """A worker of a collective job."""

    def __init__(self, current_id: int = 0, worker_endpoints: Sequence[str] | None = None) -> None:
        super().__init__(is_collective=True, current_id=current_id, worker_endpoints=worker_endpoints)


class GeneralRoleMaker(PaddleCloudRoleMaker):
    """The role in a job with parameter servers from the launcher's environment.

    The arguments describe how Paddle's workers find each other (a shared directory, HDFS or HTTP, with timeouts).
    They have no effect: the workers communicate through the servers.
    """

    def __init__(self, **kwargs: Any) -> None:
        _check_rendezvous("GeneralRoleMaker", kwargs)
        super().__init__(is_collective=False)


def _check_rendezvous(kind: str, given: dict[str, Any]) -> None:
    for name in given:
        if name not in _RENDEZVOUS:
            raise ConfigError(f"{kind} has no argument {name!r}{nearest(name, _RENDEZVOUS)}")
    if given:
        logger.info(
            "%s: %s: no effect; workers communicate through the servers", kind, ", ".join(sorted(given))
        )


__getattr__ = missing(__name__, globals())
