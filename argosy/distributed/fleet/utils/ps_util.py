"""DistributedInfer: test or infer with tables on parameter servers."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from argosy.distributed.fleet.api import DistributedStrategy, fleet
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program, default_main_program, default_startup_program
from argosy.engine.ir.variable import Variable
from argosy.engine.runtime.executor import Executor
from argosy.optimizer import SGD


class DistributedInfer:
    """Builds a test program whose tables are looked up on the servers.

    `main_program` is the program as the model's code built it, best cloned (for_test=True) before `minimize`. In a
    training job, call `get_dist_infer_program()` only. In a job that only infers, every process first calls
    `init_distributed_infer_env`: the servers load the tables that `fleet.save_persistables` wrote, and serve.
    """

    def __init__(self, main_program: Program | None = None, startup_program: Program | None = None) -> None:
        self._main = (main_program or default_main_program()).clone()
        self._startup = startup_program or default_startup_program()

    def init_distributed_infer_env(
        self, exe: Executor, loss: Variable, role_maker: Any = None, dirname: str | None = None
    ) -> None:
        """Connect to the servers, which load `dirname`; on a server it returns when all workers have disconnected."""
        if fleet._servers is None:
            fleet.init(role_maker)
        if fleet._servers is None:
            return  # no servers: this process holds all tables
        if fleet._servers.plan is None:
            strategy = DistributedStrategy()
            strategy.a_sync = True
            fleet.distributed_optimizer(SGD(0.0), strategy).minimize(loss, self._startup)
        if fleet.is_server():
            fleet.init_server(dirname)
            fleet.run_server()
            return
        exe.run(self._startup)
        fleet.init_worker()

    def get_dist_infer_program(self) -> Program:
        """The program without backward and updates; its tables are looked up on the servers."""
        if fleet._role_maker is None:
            raise ConfigError(
                "DistributedInfer before fleet.init; call fleet.init() or init_distributed_infer_env first"
            )
        if fleet._servers is None:
            return self._main.clone(for_test=True)
        return fleet._servers.infer_program(self._main)
