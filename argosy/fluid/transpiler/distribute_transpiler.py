"""DistributeTranspiler: splits a single-process program into trainer programs and parameter-server programs.

t = fluid.DistributeTranspiler(config)
t.transpile(trainer_id, program, pservers="10.0.0.1:6174,10.0.0.2:6174", trainers=4)
server:   exe.run(t.get_startup_program(endpoint));  exe.run(t.get_pserver_program(endpoint))
trainer:  exe.run(startup);  exe.run(t.get_trainer_program(), feed=…);  exe.close()
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

from argosy.distributed.ps.placement import Slicing, describe, make_plan
from argosy.distributed.ps.server_program import to_server
from argosy.distributed.ps.trainer_program import to_trainer
from argosy.engine.errors import ArgumentTypeError, ConfigError
from argosy.engine.ir.clone import clone
from argosy.engine.ir.program import Program, default_main_program, default_startup_program
from argosy.engine.log import logger
from argosy.engine.ps.protocol.job_plan import Compensation, JobPlan
from argosy.engine.ps.protocol.slicing import check_endpoint
from argosy.engine.ps.rpc.client import wait_for_servers
from argosy.fluid.transpiler.collective import check_trainer_id, transpile_collective
from argosy.fluid.transpiler.config import DistributeTranspilerConfig, ServerRuntimeConfig
from argosy.fluid.transpiler.dispatchers import dispatcher

__all__ = ["DistributeTranspiler", "DistributeTranspilerConfig", "ServerRuntimeConfig", "slicing_of"]

_WITHOUT_SERVERS = (
    "nccl_comm_num",
    "use_hierarchical_allreduce",
    "hierarchical_allreduce_inter_nranks",
    "collective_mode",
)


class DistributeTranspiler:
    """Splits a program for trainers and parameter servers; see the example of the module."""

    def __init__(self, config: DistributeTranspilerConfig | None = None) -> None:
        if config is not None and not isinstance(config, DistributeTranspilerConfig):
            raise ArgumentTypeError(
                f"DistributeTranspiler was given a {type(config).__name__}; give a fluid.DistributeTranspilerConfig"
            )
        self.config = config or DistributeTranspilerConfig()
        self._programs: tuple[Program, Program, Program, Program] | None = None
        self._plan: JobPlan | None = None
        self._is_trainer = False

    def transpile(
        self,
        trainer_id: int,
        program: Program | None = None,
        pservers: str | Sequence[str] = "127.0.0.1:6174",
        trainers: int | str | Sequence[str] = 1,
        sync_mode: bool = True,
        startup_program: Program | None = None,
        current_endpoint: str = "127.0.0.1:6174",
    ) -> None:
        """Place variables on servers. Every process of the job calls it with the same arguments except trainer_id.

        `pservers`: all endpoints, as a string with commas or as a list.
        `trainers`: their number (mode "pserver"), or all endpoints as a string (modes "nccl2", "collective").
        `sync_mode` applies to trainers and servers.
        """
        program = program or default_main_program()
        startup = startup_program or default_startup_program()
        if self.config.mode != "pserver":
            transpile_collective(self.config, trainer_id, program, startup, trainers, current_endpoint)
            return
        if not isinstance(trainers, int) or isinstance(trainers, bool) or trainers < 1:
            raise ArgumentTypeError(
                f"transpile: trainers is {trainers!r}; in mode 'pserver' use the number of trainers, an int such as 2"
            )
        check_trainer_id(trainer_id, trainers)
        endpoints = _endpoints(pservers)
        _warn_unused(self.config)
        self._plan = self._make_plan(program, endpoints, trainers, bool(sync_mode))
        self._number = trainer_id
        # Copies to build servers from: get_trainer_program rewrites the programs in place.
        self._programs = (program, startup, program.clone(), clone(startup, for_test=False))
        if self.config.print_log:
            for line in [f"{self._plan.mode}, {trainers} trainers", *describe(self._plan)]:
                print(f"transpiler: {line}", flush=True)

    def _make_plan(self, program: Program, endpoints: list[str], trainers: int, sync_mode: bool) -> JobPlan:
        config = self.config
        mode = _mode(config, sync_mode)
        compensation = None
        if config.enable_dc_asgd:
            if mode != "async":
                raise ConfigError(
                    f"enable_dc_asgd needs asynchronous training, but this job is {mode}; call transpile(…, "
                    "sync_mode=False)"
                )
            strength = config.dc_asgd_lambda
            if config.dc_asgd_adaptive and not config.is_assigned("dc_asgd_lambda"):
                strength = 2.0
            compensation = Compensation(strength, config.dc_asgd_decay if config.dc_asgd_adaptive else None)
        slicing = slicing_of(config, endpoints)
        k_steps = config.geo_sgd_need_push_nums if mode == "geo" else 1
        return make_plan(
            program, endpoints, trainers, mode, slicing, compensation=compensation, k_steps=k_steps
        )

    def get_trainer_program(self, wait_port: bool = True) -> Program:
        """Rewrite the main and startup program for this trainer, and wait until all servers listen."""
        plan = self._required_plan("get_trainer_program")
        assert self._programs is not None, "set together with the plan"
        program, startup, *_ = self._programs
        if not self._is_trainer:
            to_trainer(program, startup, plan, self._number)
            self._is_trainer = True
        if wait_port and self.config.wait_port:
            wait_for_servers(plan.endpoints)
        return program

    def get_pserver_program(self, endpoint: str) -> Program:
        """The program of the server at this endpoint; running it serves until all trainers have disconnected."""
        return self.get_pserver_programs(endpoint)[0]

    def get_pserver_programs(self, endpoint: str) -> tuple[Program, Program]:
        """(main, startup) of the server at this endpoint."""
        plan = self._required_plan("get_pserver_programs")
        assert self._programs is not None, "set together with the plan"
        wanted = check_endpoint(endpoint)
        if wanted not in plan.endpoints:
            raise ConfigError(
                f"{endpoint!r} is not a server of this job; the servers are {', '.join(plan.endpoints)}"
            )
        number = plan.endpoints.index(wanted)
        if not any(True for _ in plan.blocks_of(number)) and not plan.tables:
            logger.warning("server %s has no optimize block: there are fewer blocks than servers", endpoint)
        _, _, program, startup = self._programs
        return to_server(program, startup, plan, number)

    def get_startup_program(
        self, endpoint: str, pserver_program: Program | None = None, startup_program: Program | None = None
    ) -> Program:
        """The startup program of the server at this endpoint."""
        return self.get_pserver_programs(endpoint)[1]

    def _required_plan(self, what: str) -> JobPlan:
        if self.config.mode != "pserver":
            raise ConfigError(
                f"{what}: mode {self.config.mode!r} has no servers; run the program that transpile was given"
            )
        if self._plan is None:
            raise ConfigError(f"{what} before transpile; call transpile(trainer_id, program, …) first")
        return self._plan

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"DistributeTranspiler has no {name!r}")


def slicing_of(config: DistributeTranspilerConfig, endpoints: Sequence[str]) -> Slicing:
    """How the config splits variables into blocks, and places the blocks on these servers."""
    chosen = dispatcher(config.split_method, endpoints)
    return Slicing(config.slice_var_up, config.min_block_size, chosen.place)


def _mode(config: DistributeTranspilerConfig, sync_mode: bool) -> str:
    """The training mode: synchronous only if both transpile(sync_mode=) and config.sync_mode are True."""
    if config.geo_sgd_mode:
        if config.half_async:
            raise ConfigError(
                "half_async=True with geo_sgd_mode=True: these are different modes; set only one of them"
            )
        return "geo"
    if sync_mode and config.sync_mode:
        for name in ("half_async", "runtime_split_send_recv"):
            if getattr(config, name):
                raise ConfigError(
                    f"{name}=True with sync_mode=True; set sync_mode=False, or leave {name} out"
                )
        return "sync"
    return "half_async" if config.half_async else "async"


def _endpoints(pservers: str | Sequence[str]) -> list[str]:
    listed = pservers.split(",") if isinstance(pservers, str) else pservers
    if isinstance(listed, list | tuple) and all(isinstance(endpoint, str) for endpoint in listed):
        endpoints = [check_endpoint(endpoint) for endpoint in listed if endpoint.strip()]
        if endpoints and len(set(endpoints)) == len(endpoints):
            return endpoints
    raise ConfigError(f"transpile: pservers is {pservers!r}; list each server's host:port once")


def _warn_unused(config: DistributeTranspilerConfig) -> None:
    """Warn about fields that were set and have an effect only in modes without servers."""
    default = DistributeTranspilerConfig()
    given = [name for name in _WITHOUT_SERVERS if getattr(config, name) != getattr(default, name)]
    if given:
        logger.warning("DistributeTranspilerConfig: %s: no effect in mode 'pserver'", ", ".join(given))
