"""fleet with parameter servers: what minimize, init_server, init_worker and the rest do then.

every process     fleet.init();  build the net;  fleet.distributed_optimizer(opt, strategy).minimize(loss)
server            fleet.init_server();  fleet.run_server()                     until all workers have stopped
worker            exe.run(startup);  fleet.init_worker();  train;  fleet.stop_worker()
"""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import torch
from torch import Tensor

from argosy.distributed.fleet.base.role_maker import RoleMakerBase
from argosy.distributed.fleet.distributed_strategy import DistributedStrategy
from argosy.distributed.ps.planning import Slicing, make_plan
from argosy.distributed.ps.saving import exchange_changes, load_on_server, save_persistables
from argosy.distributed.ps.server_program import on_trainers, to_server
from argosy.distributed.ps.trainer_program import to_infer, to_trainer
from argosy.engine import env
from argosy.engine.errors import ConfigError
from argosy.engine.ir.clone import clone
from argosy.engine.ir.program import Program
from argosy.engine.ir.variable import Variable
from argosy.engine.log import NOTICE, logger
from argosy.engine.ps.plan import Compensation, Plan
from argosy.engine.ps.slicing import MIN_BLOCK_SIZE
from argosy.engine.ps.trainer.trainer import Trainer, connect, current, disconnect, is_connected
from argosy.engine.ps.wait_port import wait_for_servers
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.remote import begin
from argosy.engine.runtime.scope import global_scope
from argosy.fluid import io as fluid_io
from argosy.static.io import VARS_FILE

_MOST_ROWS = 1 << 24
"""A table of more rows is not put into a model for one process."""
_IGNORED = (
    "send_queue_size",
    "independent_recv_thread",
    "thread_pool_size",
    "send_wait_times",
    "heter_worker_device_guard",
    "lr_decay_steps",
    "use_ps_gpu",
)
_OF_ASYNC = ("max_merge_var_num", "min_send_grad_num_before_recv")


class ServerMode:
    """One process of a job with parameter servers."""

    def __init__(self, roles: RoleMakerBase) -> None:
        self.roles = roles
        self.plan: Plan | None = None
        self._program: Program | None = None
        self._startup: Program | None = None
        self._whole: tuple[Program, Program] | None = None
        """The programs of one process, as they were before they were rewritten."""
        self.served: tuple[Program, Program] | None = None
        """What this server runs, and how its values begin."""
        self._waits_for_servers = True

    # --- building -------------------------------------------------------------------------------------

    def rewrite(self, program: Program, startup: Program, strategy: DistributedStrategy) -> None:
        """Behind `minimize`: plan what lies where; a worker's programs are rewritten, a server's are made later."""
        endpoints = self.roles.get_pserver_endpoints()
        configs = strategy.a_sync_configs
        mode = mode_of(strategy)
        merged = _communicator("max_merge_var_num", configs["max_merge_var_num"])
        self.plan = make_plan(
            program,
            endpoints,
            self.roles.worker_num(),
            mode,
            Slicing(min_block_size=MIN_BLOCK_SIZE),
            compensation=_compensation(strategy, mode),
            k_steps=max(1, configs["k_steps"]),
            merged_steps=merged if mode == "async" else 1,
            pull_every=_communicator(
                "min_send_grad_num_before_recv", configs["min_send_grad_num_before_recv"]
            ),
            initialised_by_trainer=True,
        )
        note_ignored(strategy, mode)
        whole = program.clone()
        whole.minimized = list(program.minimized)
        for done in program.minimized:
            done.optimizer._states[whole] = dict(done.optimizer._states.get(program, {}))
        self._whole = (whole, clone(startup, for_test=False))
        self._program, self._startup = program, startup
        if self.roles.is_worker():
            to_trainer(program, startup, self.plan, self.roles.worker_index())
            self._waits_for_servers = bool(configs["launch_barrier"])

    # --- servers --------------------------------------------------------------------------------------

    def init_server(self, dirname: str | None, var_names: list[str] | None) -> None:
        """Make the server's programs and first values; with `dirname`, those that were saved there."""
        self._check_server("init_server")
        plan = self._planned("init_server")
        assert self._whole is not None, "a plan comes with its programs"
        main, startup = to_server(*self._whole, plan, self.roles.server_index())
        Executor().run(startup)
        if dirname is not None:
            known = {table.name for table in plan.tables}
            for name in var_names or ():
                if name not in known:
                    raise ConfigError(
                        f"init_server: {name!r} is no table on the servers; the tables are {sorted(known) or 'none'}"
                    )
            load_on_server(main, Path(dirname, VARS_FILE), var_names or None)
        self.served = (main, startup)

    def run_server(self) -> None:
        """Serve until all workers have stopped."""
        self._check_server("run_server")
        if self.served is None:
            raise ConfigError("fleet.run_server before fleet.init_server; call it first")
        Executor().run(self.served[0])

    def _check_server(self, asking: str) -> None:
        if not self.roles.is_server():
            raise ConfigError(
                f"fleet.{asking}: this process is worker {self.roles.worker_index()} (fleet.is_server() is False); "
                "call it on servers only"
            )

    # --- workers --------------------------------------------------------------------------------------

    def init_worker(self) -> None:
        """Meet the servers: worker 0 gives them the first values, all take them over."""
        plan = self._planned("init_worker")
        if not self.roles.is_worker():
            raise ConfigError("fleet.init_worker on a server; call it where fleet.is_worker() is True")
        assert self._program is not None, "a plan comes with its programs"
        scope = global_scope()
        if missing := [
            v.name for v in plan.dense if v.name not in scope or scope.values_of()[v.name] is None
        ]:
            raise ConfigError(
                f"fleet.init_worker: {missing[0]!r} has no value yet; run the startup program first: "
                "exe.run(static.default_startup_program())"
            )
        if self._waits_for_servers and env.flag("FLAGS_LAUNCH_BARRIER", True):
            wait_for_servers(plan.endpoints)
        trainer = connect(plan, self.roles.worker_index())
        values = {variable.name: scope.get(variable.name) for variable in plan.dense}
        if trainer.number == 0 and not trainer.connection.is_initialised:
            assert self._whole is not None, "a plan comes with its programs"
            own = on_trainers(self._whole[0], plan)
            kept = {n: scope.get(n) for n in own if scope.values_of().get(n) is not None}
            trainer.blocks.initialise(values, kept)
        for name, value in trainer.kept().items():
            scope.get(name).copy_(value)
        trainer.blocks.pull(values)
        begin(self._program, scope)

    def stop_worker(self) -> None:
        """Leave the servers; the last worker's leaving ends them."""
        if is_connected():
            self.exchange_changes()
            disconnect()
        else:
            logger.warning("fleet.stop_worker: this worker is not connected to servers")

    def exchange_changes(self) -> None:
        """geo: give the servers what has changed here since the last exchange."""
        if is_connected():
            exchange_changes(current())

    def trainer(self, asking: str) -> Trainer:
        if not is_connected():
            raise ConfigError(
                f"fleet.{asking} before fleet.init_worker, or after fleet.stop_worker; call it in between"
            )
        return current()

    # --- saving ---------------------------------------------------------------------------------------

    def save_persistables(self, dirname: str, program: Program) -> None:
        """Everything: parameters and optimizer state from the servers, tables by each server, the rest from here."""
        save_persistables(self.trainer("save_persistables"), program, Path(dirname, VARS_FILE))

    def save_inference_model(
        self,
        executor: Executor,
        dirname: str,
        feeds: list[str],
        targets: list[Variable],
        program: Program | None,
    ) -> None:
        """A model for one process: the tables' rows are fetched and written as ordinary parameters."""
        trainer = self.trainer("save_inference_model")
        assert self._whole is not None, "a plan comes with its programs"
        whole = self._whole[0]
        scope = global_scope()
        names = [target.name for target in targets]
        exchange_changes(trainer)
        trainer.blocks.pull({v.name: scope.get(v.name) for v in trainer.plan.dense})
        for table in trainer.plan.tables:
            rows = whole.var(table.name).shape[0]
            if rows > _MOST_ROWS:
                raise ConfigError(
                    f"the table {table.name!r} has {rows:,} rows, too many for a model of one process; use "
                    "fleet.save_persistables and DistributedInfer"
                )
            scope.put(table.name, all_rows(trainer, table.name, rows))
        fetched = [whole.var(name) for name in names]
        fluid_io.save_inference_model(dirname, feeds, fetched, executor, whole)
        scope.erase([table.name for table in trainer.plan.tables])

    def infer_program(self, program: Program) -> Program:
        """A program for testing whose lookups are answered by the servers."""
        made = program.clone(for_test=True)
        to_infer(made, self._planned("DistributedInfer"), self.roles.worker_index())
        return made

    def _planned(self, asking: str) -> Plan:
        if self.plan is None:
            raise ConfigError(
                f"fleet.{asking} before minimize; call fleet.distributed_optimizer(optimizer, strategy).minimize(loss)"
            )
        return self.plan


def all_rows(trainer: Trainer, table: str, rows: int, at_once: int = 1 << 16) -> Tensor:
    """The rows 0 to `rows` - 1 of a table; those that nobody has looked up yet have their first values."""
    ids = torch.arange(rows)
    return torch.cat([trainer.rows.ask(table, part, create=False).wait() for part in ids.split(at_once)])


def mode_of(strategy: DistributedStrategy) -> str:
    """sync, async, half_async or geo."""
    configs = strategy.a_sync_configs
    k_steps = configs["k_steps"]
    is_assigned = strategy.is_assigned("a_sync")
    if is_assigned and not strategy.a_sync:
        if k_steps > 0 or configs["half_async"]:
            which = "k_steps" if k_steps > 0 else "half_async"
            raise ConfigError(
                f"a_sync_configs {which!r} belongs to a_sync=True; set it, or leave {which!r} out"
            )
        return "sync"
    if k_steps > 0 and configs["half_async"]:
        raise ConfigError(
            f"a_sync_configs 'half_async' with k_steps={k_steps}: these are two modes; choose one"
        )
    mode = "geo" if k_steps > 0 else "half_async" if configs["half_async"] else "async"
    if not is_assigned:
        words = {"geo": f"geo, with changes exchanged every {k_steps} steps", "async": "asynchronous"}
        logger.log(
            NOTICE,
            "strategy.a_sync was not set: training is %s; a_sync = False is synchronous training, and "
            "a_sync_configs = {'k_steps': 100} exchanges changes every 100 steps",
            words.get(mode, mode),
        )
    return mode


def _compensation(strategy: DistributedStrategy, mode: str) -> Compensation | None:
    configs = strategy.a_sync_configs
    if not configs["dc_asgd"]:
        return None
    if mode != "async":
        raise ConfigError(
            f"a_sync_configs 'dc_asgd' belongs to asynchronous training, and this job is {mode}; leave it out"
        )
    adaptive = configs["dc_asgd_adaptive"]
    strength: float = configs["dc_asgd_lambda"]
    if adaptive and not strategy.part("a_sync_configs").is_assigned("dc_asgd_lambda"):
        strength = 2.0
    return Compensation(strength, 0.95 if adaptive else None)


def _communicator(name: str, configured: int) -> int:
    """A setting of Paddle's communicator: its environment variable, else the strategy's."""
    return env.number(f"FLAGS_communicator_{name}", default=configured) or configured


def note_ignored(strategy: DistributedStrategy, mode: str) -> None:
    """Say which settings of Paddle's communicator were set and have no counterpart here, or not in this mode."""
    configs = strategy.part("a_sync_configs")
    given = [name for name in _IGNORED if configs.is_assigned(name)]
    if given:
        logger.warning("a_sync_configs: %s: not used here; see docs/parameter-server.md", ", ".join(given))
    given = [name for name in _OF_ASYNC if configs.is_changed(name)] if mode != "async" else []
    if given:
        logger.warning("a_sync_configs: %s: used under async only, and this is %s", ", ".join(given), mode)


def no_servers(asking: str) -> None:
    """What a process without a launcher says: it trains alone."""
    logger.warning("fleet.%s does nothing: this process was started without servers and trains alone", asking)
