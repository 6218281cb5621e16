"""Fleet: three lines make a single-card program a distributed one.

fleet.init(is_collective=True, strategy=strategy)          meet the other ranks
optimizer = fleet.distributed_optimizer(optimizer)         remember what to do
optimizer.minimize(loss)                                   backward, updates, and the strategy's rewrites
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import fx

from argosy.distributed.fleet.base.role_maker import PaddleCloudRoleMaker, RoleMakerBase
from argosy.distributed.fleet.distributed_strategy import DistributedStrategy
from argosy.distributed.fleet.plan import startup_passes, training_passes
from argosy.distributed.fleet.ps_mode import ServerMode, no_servers
from argosy.distributed.fleet.unused_switches import note_ignored
from argosy.distributed.fleet.util import UtilBase
from argosy.engine import collective
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program, default_main_program, default_startup_program
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.log import logger
from argosy.engine.passes.base import settle
from argosy.engine.passes.rewrite import rewrite
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.flags import set_flags
from argosy.engine.runtime.scope import global_scope
from argosy.engine.runtime.training_state import Training
from argosy.fluid import io as fluid_io
from argosy.optimizer.optimizer import Names, Optimizer
from argosy.static.compiled_program import configure, draw
from argosy.static.io import VARS_FILE, write_vars
from argosy.static.io_divided import refuse_stale

Updates = tuple[list[fx.Node], list[tuple[Parameter, Variable]]]
"""What `minimize` gives: the nodes that update, and pairs of parameter and gradient."""


class DistributedOptimizer:
    """An optimizer whose `minimize` also rewrites the program as the strategy says; else it is the one inside."""

    def __init__(self, fleet: Fleet, inner: Optimizer, strategy: DistributedStrategy) -> None:
        self._fleet, self.inner, self.strategy = fleet, inner, strategy
        self._program: Program | None = None

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Names = None,
        no_grad_set: Names = None,
    ) -> Updates:
        """Add backward, communication and updates; returns update nodes and (parameter, gradient) pairs."""
        made = self._fleet._minimize(self, loss, startup_program, parameter_list, no_grad_set)
        self._program = loss.program
        return made

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's variables and the scheduler's state; an error if other ranks update some of them."""
        state = self.inner.state_dict()
        if self._program is not None:
            refuse_stale("state_dict", self._program, state)
        return state

    def __getattr__(self, name: str) -> Any:
        if name == "inner":
            raise AttributeError(name)  # being copied: there is nothing inside yet
        if name in ("backward", "apply_gradients", "apply_optimize"):
            raise ConfigError(
                f"fleet's optimizer has no {name}: by itself it would exchange no gradients; use minimize(loss)"
            )
        return getattr(self.inner, name)


class Fleet:
    """The ranks of a job and what they do together; a process has one, and this module's functions are its."""

    def __init__(self) -> None:
        self._role_maker: RoleMakerBase | None = None
        self._strategy, self._given = DistributedStrategy(), False
        self._programs: tuple[Program, Program] | None = None
        self._optimizer: DistributedOptimizer | None = None
        self._servers: ServerMode | None = None
        """What is done otherwise in a job with parameter servers."""
        self._util = UtilBase()

    # --- the three lines ------------------------------------------------------------------------------

    def init(
        self,
        role_maker: RoleMakerBase | None = None,
        is_collective: bool = False,
        strategy: DistributedStrategy | None = None,
    ) -> Fleet:
        """Find out who this process is, and meet the other ranks. Without a launcher it is alone."""
        if not isinstance(is_collective, bool):
            raise ConfigError(f"fleet.init: is_collective is {is_collective!r}; use True or False")
        if role_maker is not None and not isinstance(role_maker, RoleMakerBase):
            raise ConfigError(
                f"fleet.init: role_maker is a {type(role_maker).__name__}; use PaddleCloudRoleMaker or "
                "UserDefinedRoleMaker, or leave it out (a strategy is given as strategy=…)"
            )
        self._strategy, self._given = _checked(strategy, DistributedStrategy()), strategy is not None
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
            torch.manual_seed(torch.initial_seed() + world.rank)  # else all ranks drop out the same units
        return self

    def distributed_optimizer(
        self, optimizer: Optimizer, strategy: DistributedStrategy | None = None
    ) -> DistributedOptimizer:
        """The optimizer for this job; a strategy given here replaces the one of `init`."""
        self._roles("distributed_optimizer")
        if not isinstance(optimizer, Optimizer):
            raise ConfigError(
                f"fleet.distributed_optimizer was given a {type(optimizer).__name__}; give an optimizer, such as "
                "optimizer.Momentum(…)"
            )
        if strategy is not None:
            if self._given and strategy is not self._strategy:
                logger.warning("fleet.distributed_optimizer: this strategy replaces the one given before")
            self._strategy, self._given = _checked(strategy, self._strategy), True
        self._optimizer = DistributedOptimizer(self, optimizer, self._strategy)
        return self._optimizer

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Names = None,
        no_grad_set: Names = None,
    ) -> Updates:
        """`minimize` of the optimizer that was given last to `distributed_optimizer`."""
        return self._wrapped("minimize").minimize(loss, startup_program, parameter_list, no_grad_set)

    def _minimize(
        self,
        optimizer: DistributedOptimizer,
        loss: Variable,
        startup_program: Program | None,
        parameter_list: Names,
        no_grad_set: Names,
    ) -> Updates:
        program, startup = loss.program, startup_program or default_startup_program()
        minimize = partial(optimizer.inner.minimize, loss, startup_program, parameter_list, no_grad_set)
        rewritten = self._for_ranks if self._servers is None else self._for_servers
        updates, params_grads = rewritten(loss, startup, optimizer.strategy, minimize)
        optimizer.strategy.freeze()
        self._programs = (program, startup)
        here = set(program.graph.nodes)  # other ranks (in Reduce mode) or the servers have the rest
        return [update for update in updates if update in here], params_grads

    def _for_ranks(
        self, loss: Variable, startup: Program, strategy: DistributedStrategy, minimize: Callable[[], Updates]
    ) -> Updates:
        """Minimize, and let the ranks exchange gradients."""
        roles, world, program = self._roles("minimize"), collective.world(), loss.program
        strategy.check(world.size, roles.node_num())
        if world.size > 1:
            _check_startup(program, startup)
        equal = set(startup.persistables())  # the optimizer's state, which comes next, begins with constants
        draw(program, strategy.build_strategy, "_original_graph")
        updates, params_grads = minimize()
        configure(program, strategy.build_strategy)
        if strategy.is_assigned("cudnn_exhaustive_search"):
            set_flags({"FLAGS_cudnn_exhaustive_search": strategy.cudnn_exhaustive_search})
        note_ignored(strategy, world.size)
        if world.size > 1:
            hosts = roles.node_num()
            rewrite(program, training_passes(strategy, loss, params_grads, world.size, hosts, world.rank))
            settle(program.graph)
            rewrite(startup, startup_passes(startup, equal))
        draw(program, strategy.build_strategy, "_multi_devices_graph")
        return updates, params_grads

    def _for_servers(
        self, loss: Variable, startup: Program, strategy: DistributedStrategy, minimize: Callable[[], Updates]
    ) -> Updates:
        """Minimize, and leave the updates to the servers."""
        assert self._servers is not None, "there are servers"
        minimized = minimize()
        configure(loss.program, strategy.build_strategy)
        self._servers.rewrite(loss.program, startup, strategy)
        return minimized

    # --- who is who -----------------------------------------------------------------------------------

    def is_first_worker(self) -> bool:
        """True on rank 0."""
        return self._roles("is_first_worker").is_first_worker()

    def worker_index(self) -> int:
        """This process's rank."""
        return self._roles("worker_index").worker_index()

    def worker_num(self) -> int:
        """How many ranks there are."""
        return self._roles("worker_num").worker_num()

    def node_num(self) -> int:
        """On how many hosts they run."""
        return self._roles("node_num").node_num()

    def local_rank(self) -> int:
        """This process's number on its host."""
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
        """How many parameter servers there are."""
        return self._roles("server_num").server_num()

    def server_index(self) -> int:
        """The number of this parameter server."""
        return self._roles("server_index").server_index()

    def server_endpoints(self, to_string: bool = False) -> list[str] | str:
        """host:port of every parameter server, as a list or joined by commas."""
        return _joined(self._roles("server_endpoints").get_pserver_endpoints(), to_string)

    def barrier_worker(self) -> None:
        """Return when every rank has come; under geo, with what it has changed."""
        self._roles("barrier_worker")
        if self._servers is not None:
            self._servers.exchange_changes()
        self._util.barrier("worker")

    @property
    def util(self) -> UtilBase:
        """all_reduce, all_gather, barrier, get_file_shard, print_on_rank."""
        return self._util

    @property
    def main_program(self) -> Program:
        """The program of the last `minimize` (1.x scripts run it); after `init_server` what this server runs."""
        if self._servers is not None and self._servers.served is not None:
            return self._servers.served[0]
        return self._minimized("main_program")[0]

    @property
    def startup_program(self) -> Program:
        """The startup program of the last `minimize`; after `init_server` that of this server."""
        if self._servers is not None and self._servers.served is not None:
            return self._servers.served[1]
        return self._minimized("startup_program")[1]

    # --- saving ---------------------------------------------------------------------------------------

    def save_persistables(
        self, executor: Executor, dirname: str, main_program: Program | None = None, mode: int = 0
    ) -> None:
        """Rank 0 writes the program's variables, also those that other ranks update; all ranks call it together.

        With parameter servers the worker that calls it writes them, and each server its part of the tables.
        `mode` is Paddle's, and 0: everything.
        """
        if not isinstance(executor, Executor):
            raise ConfigError(
                f"fleet.save_persistables: executor is a {type(executor).__name__}; give a static.Executor"
            )
        if mode != 0:
            raise ConfigError(f"fleet.save_persistables: mode is {mode!r}; use 0: everything is saved")
        program = default_main_program() if main_program is None else main_program
        if not isinstance(program, Program):
            raise ConfigError(
                f"fleet.save_persistables: main_program is a {type(program).__name__}; give a static.Program"
            )
        if self._servers is not None:
            self._servers.save_persistables(dirname, program)
            return
        Training(executor, program, global_scope()).gather(collective.world())
        if self.is_first_worker():
            write_vars(program.persistables(), Path(dirname, VARS_FILE))
        self.barrier_worker()

    def save_inference_model(
        self,
        executor: Executor,
        dirname: str,
        feeded_var_names: list[str],
        target_vars: list[Variable],
        main_program: Program | None = None,
        export_for_deployment: bool = True,
    ) -> None:
        """Rank 0 writes a model for inference; the others wait until it is there.

        With parameter servers the worker that calls it writes it; no other has to.
        """
        if self._servers is not None:
            self._servers.save_inference_model(executor, dirname, feeded_var_names, target_vars, main_program)
            return
        if self.is_first_worker():
            fluid_io.save_inference_model(dirname, feeded_var_names, target_vars, executor, main_program)
        self.barrier_worker()

    # --- parameter servers ----------------------------------------------------------------------------

    def init_worker(self) -> None:
        """Meet the servers: worker 0 gives them the first values, and all workers begin with what they have."""
        if self._roles("init_worker")._is_collective:
            logger.warning("fleet.init_worker does nothing in a collective job")
        elif self._servers is None:
            no_servers("init_worker")
        else:
            self._servers.init_worker()

    def stop_worker(self) -> None:
        """Leave the servers; when all workers have, they end."""
        if self._roles("stop_worker")._is_collective:
            logger.warning("fleet.stop_worker does nothing in a collective job")
        elif self._servers is None:
            no_servers("stop_worker")
        else:
            self._servers.stop_worker()

    def init_server(self, dirname: str | None = None, var_names: list[str] | None = None) -> None:
        """Make this server's values; `dirname` is of `save_persistables`, `var_names` says which tables to load."""
        if (servers := self._of_servers("init_server")) is not None:
            servers.init_server(dirname, var_names)

    def run_server(self) -> None:
        """Serve until all workers have stopped."""
        if (servers := self._of_servers("run_server")) is not None:
            servers.run_server()

    def _of_servers(self, asking: str) -> ServerMode | None:
        if self._roles(asking)._is_collective:
            raise ConfigError(
                f"fleet.{asking} in a collective job, which has no servers; use fleet.init() without it"
            )
        if self._servers is None:
            no_servers(asking)
        return self._servers

    # --- the optimizer inside -------------------------------------------------------------------------

    def get_lr(self) -> float:
        """The current learning rate."""
        return self._wrapped("get_lr").inner.get_lr()

    def set_lr(self, value: float) -> None:
        """Use another learning rate from the next run on."""
        self._wrapped("set_lr").inner.set_lr(value)

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's variables and the scheduler's state."""
        return self._wrapped("state_dict").state_dict()

    def set_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Write back what `state_dict` gave."""
        self._wrapped("set_state_dict").inner.set_state_dict(state_dict)

    def _roles(self, asking: str) -> RoleMakerBase:
        if self._role_maker is None:
            raise ConfigError(f"fleet.{asking} before fleet.init; call fleet.init() first")
        return self._role_maker

    def _minimized(self, asking: str) -> tuple[Program, Program]:
        if self._programs is None:
            raise ConfigError(
                f"fleet.{asking} before minimize; call fleet.distributed_optimizer(…).minimize(loss)"
            )
        return self._programs

    def _wrapped(self, asking: str) -> DistributedOptimizer:
        if self._optimizer is None:
            raise ConfigError(
                f"fleet.{asking} without an optimizer; call fleet.distributed_optimizer(optimizer) first"
            )
        return self._optimizer


def _checked(strategy: Any, default: DistributedStrategy) -> DistributedStrategy:
    if strategy is None:
        return default
    if not isinstance(strategy, DistributedStrategy):
        raise ConfigError(f"the strategy is a {type(strategy).__name__}; use fleet.DistributedStrategy()")
    return strategy


def _check_startup(program: Program, startup: Program) -> None:
    """Every parameter's first value must be where it can be broadcast."""
    absent = [p.name for p in program.all_parameters() if p.name not in startup.vars]
    if absent:
        raise ConfigError(
            f"minimize: {absent[0]!r} gets no first value in {startup.name!r}, so the ranks would begin with values of "
            "their own; call it inside the program_guard of the model, or give it the model's startup_program"
        )


def _joined(endpoints: list[str], to_string: bool) -> list[str] | str:
    return ",".join(endpoints) if to_string else endpoints
