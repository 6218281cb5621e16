"""The modes without servers, "nccl2" and "collective": all-reduce the gradients over the trainers.

LocalSGD().transpile(startup, main, rank, endpoints, current_endpoint)        the same by the classes of 1.x
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from argosy.distributed.fleet.base.role_maker import Role, UserDefinedRoleMaker
from argosy.distributed.fleet.distributed_strategy import DistributedStrategy
from argosy.distributed.fleet.strategy_passes import startup_passes, training_passes
from argosy.engine import collective
from argosy.engine.errors import ArgumentTypeError, ConfigError
from argosy.engine.ir.program import Program, default_main_program, default_startup_program
from argosy.engine.ir.training_info import OptimizerCall
from argosy.engine.ir.variable import Parameter
from argosy.engine.passes.average_parameters import AverageParameters
from argosy.engine.passes.base import finalize_collectives, rewrite
from argosy.engine.ps.protocol.slicing import check_endpoint
from argosy.fluid.transpiler.config import DistributeTranspilerConfig


def transpile_collective(
    config: DistributeTranspilerConfig,
    trainer_id: int,
    program: Program,
    startup: Program,
    trainers: int | str | Sequence[str],
    current_endpoint: str,
) -> None:
    """Rendezvous with the other trainers, and rewrite both programs."""
    endpoints = _endpoints(config.mode, trainers)
    _check_trainer(config.mode, endpoints, trainer_id, current_endpoint)
    if not program.training.optimizer_calls:
        raise ConfigError(f"{program.name} has no updates; call optimizer.minimize(loss) before transpile")
    if len(endpoints) == 1:
        return  # a single trainer needs no collectives
    roles = UserDefinedRoleMaker(
        is_collective=True, current_id=trainer_id, role=Role.WORKER, worker_endpoints=endpoints
    )
    world = collective.connect(roles.identity())
    to_broadcast = {p.name for p in program.all_parameters()}
    if config.collective_mode == "local_sgd":
        placeholder = program.recorder.placeholder_of
        names = dict.fromkeys(name for call in program.training.optimizer_calls for name in call.parameters)
        trained = tuple((name, placeholder[program.var(name).value]) for name in names)
        rewrite(program, [AverageParameters(trained, world.size)])
    else:
        for call in program.training.optimizer_calls:
            pairs = _pairs(program, call)
            rewrite(
                program,
                training_passes(_strategy(config), program, pairs, world.size, roles.node_num(), world.rank),
            )
    finalize_collectives(program.graph)
    rewrite(startup, startup_passes(startup, to_broadcast))
    program.training = replace(program.training, optimizer_calls=())


class GradAllReduce:
    """All-reduces the gradients; `nrings` is the number of communicators."""

    mode = "grad_allreduce"

    def __init__(self, nrings: int = 2) -> None:
        self.config = DistributeTranspilerConfig()
        self.config.mode, self.config.collective_mode, self.config.nccl_comm_num = (
            "collective",
            self.mode,
            nrings,
        )

    def transpile(
        self,
        startup_program: Program | None,
        main_program: Program | None,
        rank: int,
        endpoints: str | Sequence[str],
        current_endpoint: str,
        wait_port: bool = True,
    ) -> None:
        """Rewrite both programs for this trainer. The ranks always wait for each other: `wait_port` has no effect."""
        startup = default_startup_program() if startup_program is None else startup_program
        program = default_main_program() if main_program is None else main_program
        transpile_collective(self.config, rank, program, startup, endpoints, current_endpoint)


class LocalSGD(GradAllReduce):
    """Averages the parameters after each step instead; `strategy.localsgd` does so every k steps."""

    mode = "local_sgd"


def check_trainer_id(trainer_id: object, trainers: int) -> None:
    """Raise unless trainer_id is an int from 0 to trainers - 1."""
    if isinstance(trainer_id, str):
        raise ConfigError(
            f"transpile: trainer_id is the string {trainer_id!r}; use an int: int({trainer_id!r})"
        )
    if not isinstance(trainer_id, int) or not 0 <= trainer_id < trainers:
        raise ConfigError(f"transpile: trainer_id is {trainer_id!r}; use 0 to {trainers - 1}")


def _check_trainer(mode: str, endpoints: list[str], trainer_id: int, current_endpoint: str) -> None:
    check_trainer_id(trainer_id, len(endpoints))
    if mode == "collective" and len(endpoints) == 1:
        raise ConfigError(
            "transpile: mode 'collective' needs two trainers or more; run the program without transpile"
        )
    if check_endpoint(current_endpoint) not in endpoints:
        raise ConfigError(
            f"transpile: current_endpoint {current_endpoint!r} is not among the trainers {endpoints}"
        )
    if check_endpoint(current_endpoint) != endpoints[trainer_id]:
        raise ConfigError(
            f"transpile: current_endpoint is {current_endpoint!r}, but trainer {trainer_id} is at "
            f"{endpoints[trainer_id]!r}; give the number and the endpoint of the same trainer"
        )


def _strategy(config: DistributeTranspilerConfig) -> DistributedStrategy:
    strategy = DistributedStrategy()
    strategy.nccl_comm_num = config.nccl_comm_num
    if config.nccl_comm_num > 1:
        strategy.sync_nccl_allreduce = False
    if config.use_hierarchical_allreduce:
        strategy.use_hierarchical_allreduce = True
        strategy.hierarchical_allreduce_inter_nranks = config.hierarchical_allreduce_inter_nranks
    return strategy


def _pairs(program: Program, call: OptimizerCall) -> list[tuple[Parameter, Any]]:
    pairs = zip(call.parameters, call.gradients, strict=True)
    return [(program.var(p), program.var(g)) for p, g in pairs]  # type: ignore[misc]


def _endpoints(mode: str, trainers: int | str | Sequence[str]) -> list[str]:
    if isinstance(trainers, str):
        trainers = trainers.split(",")
    if isinstance(trainers, int) or (mode == "nccl2" and not isinstance(trainers, list)):
        raise ArgumentTypeError(
            f'transpile: trainers is {trainers!r}; in mode {mode!r} list all trainers: "10.0.0.1:6174,10.0.0.2:6174"'
        )
    return [check_endpoint(endpoint) for endpoint in trainers]
