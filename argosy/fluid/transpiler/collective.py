"""The modes without servers: "nccl2" and "collective" add gradients up over the trainers."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from argosy.engine import collective
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Minimized, Program
from argosy.engine.ir.variable import Parameter
from argosy.engine.passes.average_parameters import AverageParameters
from argosy.engine.passes.base import settle
from argosy.engine.passes.rewrite import rewrite
from argosy.engine.ps.slicing import check_endpoint
from argosy.fluid.transpiler.config import DistributeTranspilerConfig

if TYPE_CHECKING:
    from argosy.distributed.fleet.distributed_strategy import DistributedStrategy


def transpile_collective(
    config: DistributeTranspilerConfig,
    trainer_id: int,
    program: Program,
    startup: Program,
    trainers: int | str | Sequence[str],
    current_endpoint: str,
) -> None:
    """Meet the other trainers, and rewrite both programs for them."""
    # Not at the top: fleet's strategies are made of static's, which loads fluid.
    from argosy.distributed.fleet.base.role_maker import Role, UserDefinedRoleMaker
    from argosy.distributed.fleet.plan import startup_passes, training_passes

    endpoints = _endpoints(config.mode, trainers)
    _check_place(config.mode, endpoints, trainer_id, current_endpoint)
    if not program.minimized:
        raise ConfigError(f"{program.name} has no updates; call optimizer.minimize(loss) before transpile")
    if len(endpoints) == 1:
        return  # alone: there is nobody to meet
    roles = UserDefinedRoleMaker(
        is_collective=True, current_id=trainer_id, role=Role.WORKER, worker_endpoints=endpoints
    )
    world = collective.connect(roles.identity())
    equal = {p.name for p in program.all_parameters()}
    if config.collective_mode == "local_sgd":
        placeholder = program.recorder.placeholder_of
        names = [name for done in program.minimized for name in done.parameters]
        trained = tuple((name, placeholder[program.var(name).value]) for name in names)
        rewrite(program, [AverageParameters(trained, world.size)])
    else:
        for done in program.minimized:
            pairs = _pairs(program, done)
            rewrite(
                program,
                training_passes(
                    _strategy(config), _loss(program), pairs, world.size, roles.node_num(), world.rank
                ),
            )
    settle(program.graph)
    rewrite(startup, startup_passes(startup, equal))
    program.minimized = []


def check_number(trainer_id: object, trainers: int) -> None:
    """Raise, unless it is the number of one of so many trainers."""
    if isinstance(trainer_id, str):
        raise ConfigError(
            f"transpile: trainer_id is the text {trainer_id!r}, as the environment has it; use an int: "
            f"int({trainer_id!r})"
        )
    if not isinstance(trainer_id, int) or not 0 <= trainer_id < trainers:
        raise ConfigError(f"transpile: trainer_id is {trainer_id!r}; use 0 to {trainers - 1}")


def _check_place(mode: str, endpoints: list[str], trainer_id: int, current_endpoint: str) -> None:
    check_number(trainer_id, len(endpoints))
    if mode == "collective" and len(endpoints) == 1:
        raise ConfigError("transpile: mode 'collective' wants two trainers or more; run the program as it is")
    if check_endpoint(current_endpoint) not in endpoints:
        raise ConfigError(
            f"transpile: current_endpoint {current_endpoint!r} is not among the trainers {endpoints}"
        )
    if check_endpoint(current_endpoint) != endpoints[trainer_id]:
        raise ConfigError(
            f"transpile: current_endpoint is {current_endpoint!r}, and trainer {trainer_id} is at "
            f"{endpoints[trainer_id]!r}; give the number and the endpoint of the same trainer"
        )


def _strategy(config: DistributeTranspilerConfig) -> "DistributedStrategy":
    from argosy.distributed.fleet.distributed_strategy import DistributedStrategy

    strategy = DistributedStrategy()
    strategy.nccl_comm_num = config.nccl_comm_num
    if config.nccl_comm_num > 1:
        strategy.sync_nccl_allreduce = False
    if config.use_hierarchical_allreduce:
        strategy.use_hierarchical_allreduce = True
        strategy.hierarchical_allreduce_inter_nranks = config.hierarchical_allreduce_inter_nranks
    return strategy


def _pairs(program: Program, done: Minimized) -> list[tuple[Parameter, Any]]:
    found = zip(done.parameters, done.gradients, strict=True)
    return [(program.var(p), program.var(g)) for p, g in found]  # type: ignore[misc]


def _loss(program: Program) -> Any:
    """The variable that was differentiated: its gradient is the first of all."""
    seeds = [name for name in program.vars if name.endswith("@GRAD")]
    return program.var(seeds[0].removesuffix("@GRAD"))


def _endpoints(mode: str, trainers: int | str | Sequence[str]) -> list[str]:
    if isinstance(trainers, str):
        trainers = trainers.split(",")
    if isinstance(trainers, int) or (mode == "nccl2" and not isinstance(trainers, list)):
        raise ConfigError(
            f'transpile: trainers is {trainers!r}; in mode {mode!r} list all trainers: "10.0.0.1:6174,10.0.0.2:6174"'
        )
    return [check_endpoint(one) for one in trainers]
