"""Fleet: three lines turn a single-process program into a distributed one.

fleet.init(is_collective=True, strategy=strategy)          rendezvous with the other ranks
optimizer = fleet.distributed_optimizer(optimizer)         wrap the optimizer with the strategy
optimizer.minimize(loss)                                   add backward and updates, run the strategy's passes
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from argosy.distributed.auto import autotune
from argosy.distributed.auto.template import Template
from argosy.distributed.fleet.base.distributed_optimizer import DistributedOptimizer, Updates
from argosy.distributed.fleet.base.role_maker import PaddleCloudRoleMaker, RoleMakerBase
from argosy.distributed.fleet.base.util_factory import UtilBase
from argosy.distributed.fleet.base.wrapped_optimizer import unwrap
from argosy.distributed.fleet.distributed_strategy import DistributedStrategy
from argosy.distributed.fleet.local_sgd import average_parameters
from argosy.distributed.fleet.ps_mode import ServerMode, warn_no_servers
from argosy.distributed.fleet.strategy_checks import (
    check_collective,
    check_exclusive,
    check_with_servers,
    warn_ignored,
)
from argosy.distributed.fleet.strategy_overview import applied, changed_settings
from argosy.distributed.fleet.strategy_passes import averaging_passes, startup_passes, training_passes
from argosy.engine import collective, process_effects
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program, default_main_program, default_startup_program
from argosy.engine.ir.variable import Variable
from argosy.engine.log import NOTICE, logger
from argosy.engine.metrics.metrics_recorder import recorder
from argosy.engine.passes.base import finalize_collectives, rewrite
from argosy.engine.passes.shard_optimizer import adopt_shards, reject_sharded_state, shard_startup
from argosy.engine.ps.trainer import trainer
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.flags import set_flags
from argosy.engine.runtime.scope import global_scope
from argosy.engine.runtime.training_state import Training
from argosy.optimizer.look_ahead import LookAhead
from argosy.optimizer.optimizer import Names, Optimizer
from argosy.optimizer.recompute import RecomputeOptimizer
from argosy.static.amp import OptimizerWithMixedPrecision
from argosy.static.compiled_program import configure, draw
from argosy.static.io import VARS_FILE, inference_files, write_inference_model, write_vars
from argosy.static.io_divided import reject_local

on_template: Callable[[Program, Template], None] | None = None
"""Called by `minimize` with the program before its gradients are all-reduced; set by `python -m argosy.plan`."""


class Fleet:
    """The ranks of a job and their collective operations. A process has one; `fleet.…` functions are its methods."""

    def __init__(self) -> None:
        self._role_maker: RoleMakerBase | None = None
        self._strategy, self._has_strategy = DistributedStrategy(), False
        self._programs: tuple[Program, Program] | None = None
        self._optimizer: DistributedOptimizer | None = None
        self._servers: ServerMode | None = None
        """The implementation for a job with parameter servers; None in a collective job."""
        self._util = UtilBase()

    # --- init, distributed_optimizer, minimize --------------------------------------------------------

    def init(
        self,
        role_maker: RoleMakerBase | None = None,
        is_collective: bool = False,
        strategy: DistributedStrategy | None = None,
    ) -> Fleet:
        """Read the role of this process and rendezvous with the other ranks. Without a launcher it is the only rank."""
        if not isinstance(is_collective, bool):
            raise ConfigError(f"fleet.init: is_collective is {is_collective!r}; use True or False")
        if role_maker is not None and not isinstance(role_maker, RoleMakerBase):
            raise ConfigError(
                f"fleet.init: role_maker is a {type(role_maker).__name__}; use PaddleCloudRoleMaker or "
                "UserDefinedRoleMaker, or leave it out (a strategy is given as strategy=…)"
            )
        self._strategy, self._has_strategy = (
            _checked_strategy(strategy, DistributedStrategy()),
            strategy is not None,
        )
        self._role_maker = role_maker or PaddleCloudRoleMaker(is_collective=is_collective)
        self._util._set_role_maker(self._role_maker)
        self._servers = None
        if not (is_collective or self._role_maker._is_collective):
            self._role_maker.generate_role()
            if not self._role_maker.is_non_distributed():
                self._servers = ServerMode(self._role_maker)
            return self
        was_connected = collective.is_connected()
        world = collective.connect(self._role_maker.identity())
        if world.rank and not was_connected:
            # Otherwise dropout draws the same mask on all ranks.
            process_effects.install("random-seed", lambda: _seed_by_rank(world.rank))
        return self

    def distributed_optimizer(
        self,
        optimizer: Optimizer | LookAhead | OptimizerWithMixedPrecision | RecomputeOptimizer,
        strategy: DistributedStrategy | None = None,
    ) -> DistributedOptimizer:
        """Wrap the optimizer for this job; a strategy given here replaces that of `init`."""
        self._roles("distributed_optimizer")
        wrapped = unwrap(optimizer)
        if strategy is not None:
            if self._has_strategy and strategy is not self._strategy:
                logger.warning("fleet.distributed_optimizer: this strategy replaces the one given before")
            self._strategy, self._has_strategy = _checked_strategy(strategy, self._strategy), True
        self._optimizer = DistributedOptimizer(self._minimize, wrapped, self._strategy)
        return self._optimizer

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Names = None,
        no_grad_set: Names = None,
    ) -> Updates:
        """Call `minimize` of the optimizer that `distributed_optimizer` returned last."""
        return self._current_optimizer("minimize").minimize(
            loss, startup_program, parameter_list, no_grad_set
        )

    def _minimize(
        self,
        optimizer: DistributedOptimizer,
        loss: Variable,
        startup_program: Program | None,
        parameter_list: Names,
        no_grad_set: Names,
    ) -> Updates:
        program, startup = loss.program, startup_program or default_startup_program()
        check_exclusive(optimizer.strategy)
        inner = optimizer.decorated()
        minimize = partial(inner.minimize, loss, startup_program, parameter_list, no_grad_set)
        minimize_for = self._minimize_collective if self._servers is None else self._minimize_with_servers
        updates, params_grads = minimize_for(loss, startup, optimizer, minimize)
        strategies = applied(optimizer.strategy)
        if self.is_first_worker() and strategies:
            logger.log(NOTICE, "strategies of %s, in order: %s", program.name, strategies)
        recorder().write("strategy", text=strategies, settings=changed_settings(optimizer.strategy))
        optimizer.strategy.freeze()
        self._programs = (program, startup)
        # Other ranks (in Reduce mode) or the servers run the other updates.
        local_nodes = set(program.graph.nodes)
        return [update for update in updates if update in local_nodes], params_grads

    def _minimize_collective(
        self,
        loss: Variable,
        startup: Program,
        optimizer: DistributedOptimizer,
        minimize: Callable[[], Updates],
    ) -> Updates:
        """Minimize, and insert the all-reduces of the gradients, or of the parameters."""
        strategy = optimizer.strategy
        roles, world, program = self._roles("minimize"), collective.world(), loss.program
        check_collective(strategy, world.size, roles.node_num())
        if world.size > 1:
            _check_startup(program, startup)
        # Before minimize: optimizer state is initialized with constants and needs no broadcast.
        to_broadcast = set(startup.persistables())
        draw(program, strategy.build_strategy, "_original_graph")
        updates, params_grads = minimize()
        reject_sharded_state(updates)
        configure(program, strategy.build_strategy)
        if strategy.is_assigned("cudnn_exhaustive_search"):
            set_flags({"FLAGS_cudnn_exhaustive_search": strategy.cudnn_exhaustive_search})
        warn_ignored(strategy, world.size)
        hosts, reduced = roles.node_num(), optimizer.reduced(params_grads)
        if on_template is not None:
            on_template(program, Template.of(program, strategy, reduced))
        template = Template.of(program, strategy, reduced) if autotune.is_requested(strategy) else None
        start = None if template is None else autotune.begin(template, world, hosts)
        if template is not None and start is not None and start.setting != template.setting:
            strategy = start.setting.apply_to(strategy)
            configure(program, strategy.build_strategy)
        if world.size > 1:
            if strategy.localsgd or strategy.adaptive_localsgd:
                average = average_parameters(strategy, loss, startup, reduced, world.size)
                passes = averaging_passes(strategy, average, world.size, hosts)
            else:
                passes = training_passes(strategy, program, reduced, world.size, hosts, world.rank)
            rewrite(program, passes)
            finalize_collectives(program.graph)
            rewrite(startup, startup_passes(startup, to_broadcast))
            if strategy.sharding:
                adopt_shards(program)
                shard_startup(program, startup, world.rank)
        draw(program, strategy.build_strategy, "_multi_devices_graph")
        if template is not None and start is not None:
            autotune.attach(start, template, program)
        return updates, params_grads

    def _minimize_with_servers(
        self,
        loss: Variable,
        startup: Program,
        optimizer: DistributedOptimizer,
        minimize: Callable[[], Updates],
    ) -> Updates:
        """Minimize, and move the updates to the servers."""
        assert self._servers is not None, "called only in a job with parameter servers"
        strategy = optimizer.strategy
        if isinstance(optimizer.inner, LookAhead):
            raise ConfigError("LookAhead is for collective training, and this job has parameter servers")
        check_with_servers(strategy)
        autotune.reject_servers(strategy)
        updates = minimize()
        configure(loss.program, strategy.build_strategy)
        self._servers.rewrite(loss.program, startup, strategy)
        return updates

    # --- roles ----------------------------------------------------------------------------------------

    def is_first_worker(self) -> bool:
        """True on rank 0."""
        return self._roles("is_first_worker").is_first_worker()

    def worker_index(self) -> int:
        """This process's rank."""
        return self._roles("worker_index").worker_index()

    def worker_num(self) -> int:
        """The number of ranks."""
        return self._roles("worker_num").worker_num()

    def node_num(self) -> int:
        """The number of hosts."""
        return self._roles("node_num").node_num()

    def local_rank(self) -> int:
        """The rank of this process on its host."""
        return self._roles("local_rank").identity().local_rank

    rank, nranks, world_size = worker_index, worker_num, worker_num

    def is_worker(self) -> bool:
        """True on every rank of a collective job."""
        return self._roles("is_worker").is_worker()

    def worker_endpoints(self, to_string: bool = False) -> list[str] | str:
        """host:port of every rank, as a list or joined by commas."""
        return _joined(self._roles("worker_endpoints").get_trainer_endpoints(), to_string)

    def is_server(self) -> bool:
        """True on a parameter server."""
        return self._roles("is_server").is_server()

    def server_num(self) -> int:
        """The number of parameter servers."""
        return self._roles("server_num").server_num()

    def server_index(self) -> int:
        """The index of this parameter server."""
        return self._roles("server_index").server_index()

    def server_endpoints(self, to_string: bool = False) -> list[str] | str:
        """host:port of every parameter server, as a list or joined by commas."""
        return _joined(self._roles("server_endpoints").get_pserver_endpoints(), to_string)

    def barrier_worker(self) -> None:
        """Wait until every rank has called it; in geo mode, first send this rank's pending changes."""
        self._roles("barrier_worker")
        if self._servers is not None:
            self._servers.send_pending_changes()
        self._util.barrier("worker")

    @property
    def util(self) -> UtilBase:
        """all_reduce, all_gather, barrier, get_file_shard, print_on_rank."""
        return self._util

    @property
    def main_program(self) -> Program:
        """The program of the last `minimize` (1.x scripts run it); after `init_server`, this server's program."""
        if self._servers is not None and self._servers.server_programs is not None:
            return self._servers.server_programs[0]
        return self._minimized_programs("main_program")[0]

    @property
    def startup_program(self) -> Program:
        """The startup program of the last `minimize`; after `init_server`, this server's startup program."""
        if self._servers is not None and self._servers.server_programs is not None:
            return self._servers.server_programs[1]
        return self._minimized_programs("startup_program")[1]

    # --- saving ---------------------------------------------------------------------------------------

    def save_persistables(
        self, executor: Executor, dirname: str, main_program: Program | None = None, mode: int = 0
    ) -> None:
        """Write the program's variables on rank 0, including those that other ranks update.

        Other ranks may call it or not, and do not wait: call `barrier_worker` before another rank reads the file.
        With strategy.sharding and ReduceStrategy.Reduce, where other ranks hold optimizer state, it is a collective
        call: all ranks must make it. With parameter servers the calling worker writes the variables, and each server
        its shard of the tables. `mode` exists for Paddle; it must be 0 (save everything).
        """
        if mode != 0:
            raise ConfigError(f"fleet.save_persistables: mode is {mode!r}; use 0: everything is saved")
        self._save_persistables(executor, dirname, main_program)

    def _save_persistables(
        self, executor: Executor, dirname: str, main_program: Program | None, filename: str | None = None
    ) -> None:
        """`save_persistables`, with the name of the file, which 1.x has."""
        if not isinstance(executor, Executor):
            raise ConfigError(
                f"fleet.save_persistables: executor is a {type(executor).__name__}; give a static.Executor"
            )
        program = default_main_program() if main_program is None else main_program
        if not isinstance(program, Program):
            raise ConfigError(
                f"fleet.save_persistables: main_program is a {type(program).__name__}; give a static.Program"
            )
        if self._servers is not None:
            self._servers.save_persistables(dirname, program)
            return
        reject_local("fleet.save_persistables", program, program.persistables())
        training = Training(executor, program, global_scope())
        wholes = training.gather(collective.world(), "fleet.save_persistables")
        if collective.world().size > 1 and (period := training.unfinished()) is not None:
            logger.warning(
                "fleet.save_persistables: the ranks differ between the steps in which %s is due (%s), and rank 0 saves "
                "its values only; save in those steps, or use fleet.Checkpoint, which saves those of all ranks",
                period.name,
                period,
            )
        if self.is_first_worker():
            write_vars(program.persistables(), Path(dirname, filename or VARS_FILE), wholes)

    def save_inference_model(
        self,
        executor: Executor,
        dirname: str,
        feeded_var_names: list[str],
        target_vars: list[Variable],
        main_program: Program | None = None,
        export_for_deployment: bool = True,
    ) -> None:
        """Write a model for inference on rank 0; other ranks may call it or not, and do not wait.

        With parameter servers the calling worker writes it; one call is enough.
        """
        if self._servers is not None:
            self._servers.save_inference_model(dirname, feeded_var_names, target_vars)
            return
        if self.is_first_worker():
            write_inference_model(inference_files(dirname), feeded_var_names, target_vars, main_program)

    def shutdown(self) -> None:
        """Leave the job, and undo what Argosy has changed in this process (docs/reference/process-effects.md).

        A worker leaves its servers as in `stop_worker`. A process that has left a job of several ranks cannot rejoin
        it; programs can still be built and run.
        """
        if self._servers is not None and trainer.is_connected():
            self._servers.stop_worker()
        collective.disconnect()
        process_effects.undo_all(keep=("paddle-import",))  # the user's choice: argosy.paddle.uninstall()

    # --- parameter servers ----------------------------------------------------------------------------

    def init_worker(self) -> None:
        """Connect to the servers: worker 0 sends the initial values, then every worker pulls them."""
        if (servers := self._servers_of_worker("init_worker")) is not None:
            servers.init_worker()

    def stop_worker(self) -> None:
        """Disconnect from the servers, which exit after the last worker has disconnected."""
        if (servers := self._servers_of_worker("stop_worker")) is not None:
            servers.stop_worker()

    def _servers_of_worker(self, method: str) -> ServerMode | None:
        if self._roles(method)._is_collective:
            logger.warning("fleet.%s does nothing in a collective job", method)
            return None
        if self._servers is None:
            warn_no_servers(method)
        return self._servers

    def init_server(self, dirname: str | None = None, var_names: list[str] | None = None) -> None:
        """Initialize this server's values, or load those that `save_persistables` wrote to `dirname`.

        `var_names` selects the tables to load.
        """
        if (servers := self._servers_of_server("init_server")) is not None:
            servers.init_server(dirname, var_names)

    def run_server(self) -> None:
        """Serve until all workers have disconnected."""
        if (servers := self._servers_of_server("run_server")) is not None:
            servers.run_server()

    def _servers_of_server(self, method: str) -> ServerMode | None:
        if self._roles(method)._is_collective:
            raise ConfigError(
                f"fleet.{method} in a collective job, which has no servers; call fleet.init() without is_collective"
            )
        if self._servers is None:
            warn_no_servers(method)
        return self._servers

    # --- the inner optimizer --------------------------------------------------------------------------

    def get_lr(self) -> float:
        """The current learning rate."""
        return self._current_optimizer("get_lr").inner.get_lr()

    def set_lr(self, value: float) -> None:
        """Set the learning rate, from the next run on."""
        self._current_optimizer("set_lr").inner.set_lr(value)

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's variables and the scheduler's state."""
        return self._current_optimizer("state_dict").state_dict()

    def set_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._current_optimizer("set_state_dict").set_state_dict(state_dict)

    def _roles(self, method: str) -> RoleMakerBase:
        if self._role_maker is None:
            raise ConfigError(f"fleet.{method} before fleet.init; call fleet.init() first")
        return self._role_maker

    def _minimized_programs(self, method: str) -> tuple[Program, Program]:
        if self._programs is None:
            raise ConfigError(
                f"fleet.{method} before minimize; call fleet.distributed_optimizer(…).minimize(loss)"
            )
        return self._programs

    def _current_optimizer(self, method: str) -> DistributedOptimizer:
        if self._optimizer is None:
            raise ConfigError(
                f"fleet.{method} without an optimizer; call fleet.distributed_optimizer(optimizer) first"
            )
        return self._optimizer


def _checked_strategy(strategy: Any, default: DistributedStrategy) -> DistributedStrategy:
    if strategy is None:
        return default
    if not isinstance(strategy, DistributedStrategy):
        raise ConfigError(f"the strategy is a {type(strategy).__name__}; use fleet.DistributedStrategy()")
    return strategy


def _check_startup(program: Program, startup: Program) -> None:
    """Raise unless the startup program initializes every parameter, so that rank 0 can broadcast them."""
    uninitialized = [p.name for p in program.all_parameters() if p.name not in startup.vars]
    if uninitialized:
        raise ConfigError(
            f"minimize: {uninitialized[0]!r} is not initialized in {startup.name!r}, so the ranks would start with "
            "different values; call it inside the program_guard of the model, or give it the model's startup_program"
        )


def _seed_by_rank(rank: int) -> None:
    torch.manual_seed(torch.initial_seed() + rank)


def _joined(endpoints: list[str], to_string: bool) -> list[str] | str:
    return ",".join(endpoints) if to_string else endpoints
