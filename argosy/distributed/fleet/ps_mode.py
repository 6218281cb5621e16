"""The implementation of fleet for jobs with parameter servers: minimize, init_server, init_worker, saving.

every process     fleet.init();  build the net;  fleet.distributed_optimizer(opt, strategy).minimize(loss)
server            fleet.init_server();  fleet.run_server()                     until all workers have disconnected
worker            exe.run(startup);  fleet.init_worker();  train;  fleet.stop_worker()        2.0
                  fleet.init_worker();  exe.run(startup);  train;  fleet.stop_worker()        1.x
"""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

from argosy.distributed.fleet.base.role_maker import RoleMakerBase
from argosy.distributed.fleet.distributed_strategy import DistributedStrategy
from argosy.distributed.ps.exporting import with_tables
from argosy.distributed.ps.placement import Slicing, make_plan
from argosy.distributed.ps.saving import load_on_server, save_persistables
from argosy.distributed.ps.server_program import on_trainers, to_server
from argosy.distributed.ps.trainer_program import to_infer, to_trainer
from argosy.engine import env
from argosy.engine.errors import ConfigError
from argosy.engine.ir.clone import clone
from argosy.engine.ir.program import Program
from argosy.engine.ir.roles import TrainerRole, WorkerStartup
from argosy.engine.ir.variable import Variable
from argosy.engine.log import NOTICE, logger
from argosy.engine.ps.protocol.job_plan import Compensation, JobPlan
from argosy.engine.ps.rpc.client import wait_for_servers
from argosy.engine.ps.trainer.trainer import Trainer, connect, current, disconnect, is_connected
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.remote import begin
from argosy.engine.runtime.scope import global_scope
from argosy.engine.runtime.server_files import send_pending_changes
from argosy.static.io import VARS_FILE, inference_files, write_inference_model

_IGNORED = (
    "send_queue_size",
    "independent_recv_thread",
    "thread_pool_size",
    "send_wait_times",
    "heter_worker_device_guard",
    "lr_decay_steps",
    "use_ps_gpu",
)
_ASYNC_ONLY = ("max_merge_var_num", "min_send_grad_num_before_recv")


class ServerMode:
    """One process of a job with parameter servers."""

    def __init__(self, roles: RoleMakerBase) -> None:
        self.roles = roles
        self.plan: JobPlan | None = None
        self._program: Program | None = None
        self._startup: Program | None = None
        self._single: tuple[Program, Program] | None = None
        """(main, startup) of the single-process program, before it was rewritten."""
        self.server_programs: tuple[Program, Program] | None = None
        """(main, startup) of this server."""
        self._waits_for_servers = True
        self.slicing = Slicing()
        """How the variables are split into blocks and placed on the servers."""

    # --- building -------------------------------------------------------------------------------------

    def rewrite(self, program: Program, startup: Program, strategy: DistributedStrategy) -> None:
        """Called after `minimize`: place the variables on the servers, and rewrite a worker's programs.

        A server's programs are built by `init_server`.
        """
        endpoints = self.roles.get_pserver_endpoints()
        configs = strategy.a_sync_configs
        mode = mode_of(strategy)
        merged = _communicator_setting("max_merge_var_num", configs["max_merge_var_num"])
        self.plan = make_plan(
            program,
            endpoints,
            self.roles.worker_num(),
            mode,
            self.slicing,
            compensation=_compensation(strategy, mode),
            k_steps=max(1, configs["k_steps"]),
            merged_steps=merged if mode == "async" else 1,
            pull_every=_communicator_setting(
                "min_send_grad_num_before_recv", configs["min_send_grad_num_before_recv"]
            ),
            initialised_by_trainer=True,
        )
        warn_ignored(strategy, mode)
        self._single = (program.clone(), clone(startup, for_test=False))
        self._program, self._startup = program, startup
        if self.roles.is_worker():
            to_trainer(program, startup, self.plan, self.roles.worker_index())
            self._waits_for_servers = bool(configs["launch_barrier"])

    # --- servers --------------------------------------------------------------------------------------

    def init_server(self, dirname: str | None, var_names: list[str] | None) -> None:
        """Build the server's programs and initialize its values; with `dirname`, load those that were saved there."""
        self._check_server("init_server")
        plan = self._required_plan("init_server")
        assert self._single is not None, "set together with the plan"
        main, startup = to_server(*self._single, plan, self.roles.server_index())
        Executor().run(startup)
        if dirname is not None:
            known = {table.name for table in plan.tables}
            for name in var_names or ():
                if name not in known:
                    raise ConfigError(
                        f"init_server: {name!r} is not a table on the servers; the tables are {sorted(known) or 'none'}"
                    )
            load_on_server(main, Path(dirname, VARS_FILE), var_names or None)
        self.server_programs = (main, startup)

    def run_server(self) -> None:
        """Serve until all workers have disconnected."""
        self._check_server("run_server")
        if self.server_programs is None:
            raise ConfigError("fleet.run_server before fleet.init_server; call fleet.init_server() first")
        Executor().run(self.server_programs[0])

    def _check_server(self, method: str) -> None:
        if not self.roles.is_server():
            raise ConfigError(
                f"fleet.{method}: this process is worker {self.roles.worker_index()} (fleet.is_server() is False); "
                "call it on servers only"
            )

    # --- workers --------------------------------------------------------------------------------------

    def init_worker(self) -> None:
        """Connect to the servers: worker 0 sends the initial values, then every worker pulls them.

        Runs the startup program if the script has not run it yet (1.x scripts run it afterwards); later runs of it
        change nothing while the worker is connected.
        """
        plan = self._required_plan("init_worker")
        if not self.roles.is_worker():
            raise ConfigError("fleet.init_worker on a server; call it where fleet.is_worker() is True")
        assert self._program is not None, "set together with the plan"
        assert self._startup is not None, "set together with the plan"
        scope = global_scope()
        needed = [variable.name for variable in plan.dense] or self._startup.persistables()
        if any(scope.values_of().get(name) is None for name in needed):
            Executor().run(self._startup)
        if self._waits_for_servers and env.flag("FLAGS_LAUNCH_BARRIER", True):
            wait_for_servers(plan.endpoints)
        trainer = connect(plan, self.roles.worker_index())
        values = {variable.name: scope.get(variable.name) for variable in plan.dense}
        if trainer.number == 0 and not trainer.connection.is_initialised:
            assert self._single is not None, "set together with the plan"
            local_names = on_trainers(self._single[0], plan)
            local = {n: scope.get(n) for n in local_names if scope.values_of().get(n) is not None}
            trainer.blocks.initialise(values, local)
        for name, value in trainer.shared_init().items():
            scope.get(name).copy_(value)
        trainer.blocks.pull(values)
        assert isinstance(self._program.role, TrainerRole), "rewritten for a trainer in `rewrite`"
        begin(self._program, self._program.role, scope)
        self._startup.role = WorkerStartup()

    def stop_worker(self) -> None:
        """Disconnect from the servers, which exit after the last worker has disconnected."""
        if is_connected():
            self.send_pending_changes()
            disconnect()
        else:
            logger.warning("fleet.stop_worker: this worker is not connected to servers")

    def send_pending_changes(self) -> None:
        """geo mode: send the servers the local changes since the last synchronization."""
        if is_connected():
            send_pending_changes(current(), global_scope())

    def trainer(self, method: str) -> Trainer:
        if not is_connected():
            raise ConfigError(
                f"fleet.{method} before fleet.init_worker, or after fleet.stop_worker; call it in between"
            )
        return current()

    # --- saving ---------------------------------------------------------------------------------------

    def save_persistables(self, dirname: str, program: Program) -> None:
        """Save parameters and optimizer state from the servers, tables (each server its shard), and local variables."""
        save_persistables(self.trainer("save_persistables"), program, Path(dirname, VARS_FILE))

    def save_inference_model(self, dirname: str, feeds: list[str], targets: list[Variable]) -> None:
        """Write a single-process model with the rows of the tables; see `distributed/ps/exporting.py`."""
        trainer = self.trainer("save_inference_model")
        assert self._single is not None, "set together with the plan"
        scope = global_scope()
        names = [target.name for target in targets]
        send_pending_changes(trainer, scope)
        trainer.blocks.pull({v.name: scope.get(v.name) for v in trainer.plan.dense})
        with with_tables(self._single[0], trainer, scope) as program_with_tables:
            fetched = [program_with_tables.var(name) for name in names]
            write_inference_model(inference_files(dirname), feeds, fetched, program_with_tables)

    def infer_program(self, program: Program) -> Program:
        """A program for testing that looks its tables up on the servers."""
        test_program = program.clone(for_test=True)
        to_infer(test_program, self._required_plan("DistributedInfer"), self.roles.worker_index())
        return test_program

    def _required_plan(self, method: str) -> JobPlan:
        if self.plan is None:
            raise ConfigError(
                f"fleet.{method} before minimize; call fleet.distributed_optimizer(optimizer, strategy).minimize(loss)"
            )
        return self.plan


def mode_of(strategy: DistributedStrategy) -> str:
    """The training mode of a strategy: sync, async, half_async or geo."""
    configs = strategy.a_sync_configs
    k_steps = configs["k_steps"]
    is_assigned = strategy.is_assigned("a_sync")
    if is_assigned and not strategy.a_sync:
        if k_steps > 0 or configs["half_async"]:
            which = "k_steps" if k_steps > 0 else "half_async"
            raise ConfigError(
                f"a_sync_configs {which!r} needs a_sync=True; set strategy.a_sync=True, or leave {which!r} out"
            )
        return "sync"
    if k_steps > 0 and configs["half_async"]:
        raise ConfigError(
            f"a_sync_configs 'half_async' with k_steps={k_steps}: these are different modes; set only one of them"
        )
    mode = "geo" if k_steps > 0 else "half_async" if configs["half_async"] else "async"
    if not is_assigned:
        description = {"geo": f"geo, synchronizing changes every {k_steps} steps", "async": "asynchronous"}
        logger.log(
            NOTICE,
            "strategy.a_sync was not set: training is %s; a_sync = False is synchronous training, and "
            "a_sync_configs = {'k_steps': 100} synchronizes changes every 100 steps",
            description.get(mode, mode),
        )
    return mode


def _compensation(strategy: DistributedStrategy, mode: str) -> Compensation | None:
    configs = strategy.a_sync_configs
    if not configs["dc_asgd"]:
        return None
    if mode != "async":
        raise ConfigError(
            f"a_sync_configs 'dc_asgd' needs asynchronous training, but this job is {mode}; leave it out"
        )
    adaptive = configs["dc_asgd_adaptive"]
    strength: float = configs["dc_asgd_lambda"]
    if adaptive and not strategy.part("a_sync_configs").is_assigned("dc_asgd_lambda"):
        strength = 2.0
    return Compensation(strength, 0.95 if adaptive else None)


def _communicator_setting(name: str, configured: int) -> int:
    """A setting of Paddle's communicator: its environment variable, or else the value of the strategy."""
    return env.number(f"FLAGS_communicator_{name}", default=configured) or configured


def warn_ignored(strategy: DistributedStrategy, mode: str) -> None:
    """Warn about communicator settings that were assigned and have no effect, in general or in this mode."""
    configs = strategy.part("a_sync_configs")
    given = [name for name in _IGNORED if configs.is_assigned(name)]
    if given:
        logger.warning(
            "a_sync_configs: %s: no effect in Argosy; see docs/how-to/parameter-servers.md", ", ".join(given)
        )
    given = [name for name in _ASYNC_ONLY if configs.is_changed(name)] if mode != "async" else []
    if given:
        logger.warning("a_sync_configs: %s: no effect in %s mode, only in async mode", ", ".join(given), mode)


def warn_no_servers(method: str) -> None:
    """Warn that a call has no effect, because this process has no servers and trains alone."""
    logger.warning("fleet.%s does nothing: this process was started without servers and trains alone", method)
