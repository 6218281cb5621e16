"""The fleet of 1.x for parameter servers.

every process     fleet.init(role);  build the net;  fleet.distributed_optimizer(optimizer, strategy).minimize(loss)
server            fleet.init_server();  fleet.run_server()
worker            fleet.init_worker();  exe.run(fleet.startup_program);  exe.run(fleet.main_program, …);
                  fleet.stop_worker()
"""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from argosy.distributed.fleet.base.distributed_optimizer import Updates
from argosy.distributed.ps.placement import describe
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program
from argosy.engine.ir.variable import Variable
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import Scope, global_scope
from argosy.fluid.incubate.fleet.base.fleet_base import DistributedOptimizer, Fleet, Mode
from argosy.fluid.incubate.fleet.parameter_server.distribute_transpiler.distributed_strategy import (
    DistributedStrategy,
    strategy_of,
)
from argosy.fluid.transpiler.config import DistributeTranspilerConfig
from argosy.fluid.transpiler.distribute_transpiler import slicing_of


class ParameterServerOptimizer(DistributedOptimizer):
    """Minimizes, and moves the updates to the servers."""

    _strategy: DistributedStrategy

    def __init__(
        self, optimizer: Any, strategy: DistributedStrategy | DistributeTranspilerConfig | None = None
    ) -> None:
        super().__init__(optimizer, strategy_of(strategy))
        mode = self._strategy.get_program_config().mode
        if mode != "pserver":
            raise ConfigError(
                f"DistributeTranspilerConfig.mode is {mode!r}, which has no servers; use "
                "fluid.incubate.fleet.collective"
            )

    def minimize(
        self,
        losses: Variable | list[Variable],
        scopes: Scope | list[Scope] | None = None,
        startup_programs: Program | list[Program] | None = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
    ) -> Updates:
        """Add backward, and communication with the servers. `scopes` must be the global scope, or left out."""
        listed = scopes if isinstance(scopes, list) else [scopes]
        if any(scope is not None and scope is not global_scope() for scope in listed):
            raise ConfigError(
                "minimize: scopes is not the global scope, which fleet uses; leave it out, or use fluid.scope_guard"
            )
        config, servers = self._strategy.get_program_config(), fleet._fleet._servers
        self._optimizer.strategy = self._strategy._to_fleet()
        if servers is not None:
            servers.slicing = slicing_of(config, servers.roles.get_pserver_endpoints())
        updates = self._minimize(losses, startup_programs, parameter_list, no_grad_set)
        if config.print_log and servers is not None and servers.plan is not None:
            for line in describe(servers.plan):
                print(f"transpiler: {line}", flush=True)
        return updates


class FleetTranspiler(Fleet):
    """The fleet of a job with parameter servers."""

    def __init__(self) -> None:
        super().__init__(Mode.TRANSPILER)

    def distributed_optimizer(
        self, optimizer: Any, strategy: DistributedStrategy | DistributeTranspilerConfig | None = None
    ) -> ParameterServerOptimizer:
        """Wrap the optimizer; without a strategy, training is asynchronous as in 1.8."""
        return ParameterServerOptimizer(optimizer, strategy)

    def init_server(self, model_dir: str | None = None, **kwargs: Any) -> None:
        """Initialize this server's values, or load those that `save_persistables` wrote to `model_dir`."""
        if kwargs:
            raise ConfigError(f"fleet.init_server has no argument {next(iter(kwargs))!r}; it takes model_dir")
        self._fleet.init_server(model_dir)

    def run_server(self) -> None:
        """Serve until all workers have disconnected."""
        self._fleet.run_server()

    def save_persistables(
        self, executor: Executor, dirname: str, main_program: Program | None = None
    ) -> None:
        """Write all variables: parameters and optimizer state from the servers; each server writes its rows of tables.

        The calling worker writes the file; one call is enough.
        """
        program = self.main_program if main_program is None else main_program
        self._fleet.save_persistables(executor, dirname, program)


fleet = FleetTranspiler()
