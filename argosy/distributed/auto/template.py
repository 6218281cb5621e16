"""Template: a program with backward and updates, before its gradients are all-reduced.

    minimize ──▶ template ──▶ build(setting, ranks, hosts) ──▶ the program that a job of this setting runs

Programs of one template have the same variables, so that a running job can switch between them. None of them is run
here, so that programs for thousands of ranks can be built, compiled and simulated by one process.
"""

# SPDX-License-Identifier: Apache-2.0
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from argosy.distributed.auto.setting import Setting
from argosy.distributed.fleet.distributed_strategy import DistributedStrategy
from argosy.distributed.fleet.strategy_checks import check_collective
from argosy.distributed.fleet.strategy_passes import training_passes
from argosy.engine.errors import ConfigError
from argosy.engine.ir.clone import copy_nodes
from argosy.engine.ir.program import Program
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.log import logger
from argosy.engine.passes.base import finalize_collectives, rewrite
from argosy.engine.passes.recompute import Recompute
from argosy.engine.passes.shard_optimizer import adopt_shards
from argosy.static.compiled_program import build_of


@dataclass(frozen=True)
class Template:
    """A copy of a program as `minimize` left it, the strategy of its user, and what its ranks sum."""

    program: Program
    strategy: DistributedStrategy
    reduced: tuple[tuple[str, str], ...]
    """The names of parameters and their gradients, which all ranks sum."""

    @classmethod
    def of(
        cls,
        program: Program,
        strategy: DistributedStrategy,
        reduced: Sequence[tuple[Parameter, Variable]],
    ) -> "Template":
        """Copy the program; raises if the strategy averages parameters, or has other periods of communication."""
        for switch in ("localsgd", "adaptive_localsgd", "dgc"):
            if getattr(strategy, switch):
                raise ConfigError(
                    f"strategy.auto and strategy.{switch} are both on; the planner chooses how gradients are "
                    f"all-reduced, and {switch} all-reduces none: turn one of them off"
                )
        copied = copy_nodes(program, list(program.graph.nodes), program.name)
        return cls(copied, strategy, tuple((p.name, g.name) for p, g in reduced))

    @property
    def setting(self) -> Setting:
        """The setting of the user's strategy."""
        return Setting.of(self.strategy)

    def build(self, setting: Setting, ranks: int, hosts: int = 1, rank: int = 0) -> Program:
        """The program of one rank of a job; raises ConfigError if the setting does not fit so many ranks and hosts."""
        strategy = setting.apply_to(self.strategy)
        program = copy_nodes(self.program, list(self.program.graph.nodes), self.program.name)
        if setting.recompute and program.build.recompute is None:
            program.build = replace(program.build, recompute=Recompute(is_auto=True))
        program.build = build_of(program, strategy.build_strategy)
        if ranks == 1:
            return program
        check_collective(strategy, ranks, hosts)
        params_grads = [(_parameter(program, p), program.var(g)) for p, g in self.reduced]
        with _without_notices():
            rewrite(program, training_passes(strategy, program, params_grads, ranks, hosts, rank))
        finalize_collectives(program.graph)
        if strategy.sharding:
            adopt_shards(program)
        return program


def _parameter(program: Program, name: str) -> Parameter:
    variable = program.var(name)
    assert isinstance(variable, Parameter), f"{name} is trained, and is a {type(variable).__name__}"
    return variable


@contextmanager
def _without_notices() -> Iterator[None]:
    """Without the lines that passes log for the one program of a job: there are dozens of programs."""
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
