"""Role makers with the arguments of 1.x, in their order."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

from argosy.distributed.fleet.base import role_maker as fleet
from argosy.distributed.fleet.base.role_maker import PaddleCloudRoleMaker, Role, RoleMakerBase
from argosy.framework.missing import missing

__all__ = [
    "PaddleCloudRoleMaker",
    "Role",
    "RoleMakerBase",
    "UserDefinedCollectiveRoleMaker",
    "UserDefinedRoleMaker",
]


class UserDefinedRoleMaker(fleet.UserDefinedRoleMaker):
    """A worker or a server of a job with parameter servers."""

    def __init__(
        self,
        current_id: int = 0,
        role: int = Role.WORKER,
        worker_num: int = 0,
        server_endpoints: Sequence[str] | None = None,
    ) -> None:
        super().__init__(
            current_id=current_id, role=role, worker_num=worker_num, server_endpoints=server_endpoints
        )


class UserDefinedCollectiveRoleMaker(fleet.UserDefinedRoleMaker):
    """A worker of a collective job."""

    def __init__(self, current_id: int = 0, worker_endpoints: Sequence[str] | None = None) -> None:
        super().__init__(is_collective=True, current_id=current_id, worker_endpoints=worker_endpoints)


__getattr__ = missing(__name__, globals())
