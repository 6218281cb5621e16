"""fluid.ParallelExecutor: the 1.x way to run a program data-parallel, over CompiledProgram."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

from argosy.engine.collective import world
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program, default_main_program
from argosy.engine.ir.variable import Variable
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.feeding import FeedLike
from argosy.engine.runtime.scope import Scope
from argosy.framework.place import CPUPlace, CUDAPlace
from argosy.static.compiled_program import CompiledProgram
from argosy.static.strategies import BuildStrategy, ExecutionStrategy


class ParallelExecutor:
    """Runs one program in this process on one place; the transpiler or fleet adds the all-reduces of the gradients."""

    def __init__(
        self,
        use_cuda: bool,
        loss_name: str | None = None,
        main_program: Program | None = None,
        share_vars_from: "ParallelExecutor | None" = None,
        exec_strategy: ExecutionStrategy | None = None,
        build_strategy: BuildStrategy | None = None,
        num_trainers: int = 1,
        trainer_id: int = 0,
        scope: Scope | None = None,
    ) -> None:
        ranks = world()
        if num_trainers > 1 and (trainer_id, num_trainers) != (ranks.rank, ranks.size):
            raise ConfigError(
                f"ParallelExecutor: trainer {trainer_id} of {num_trainers}, but this is rank {ranks.rank} of "
                f"{ranks.size}; transpile the program for all trainers first (mode 'nccl2'), or use fleet"
            )
        shared = None if share_vars_from is None else share_vars_from._compiled
        compiled = CompiledProgram(main_program or default_main_program())
        self._compiled: Any = compiled.with_data_parallel(loss_name, build_strategy, exec_strategy, shared)
        self._executor, self._scope = Executor(CUDAPlace(0) if use_cuda else CPUPlace()), scope

    def run(
        self,
        fetch_list: Sequence[Variable | str],
        feed: FeedLike = None,
        feed_dict: FeedLike = None,
        return_numpy: bool = True,
    ) -> list[Any]:
        """Run once; `feed` is a dict or a list of dicts, `feed_dict` its old name."""
        given = feed_dict if feed is None else feed
        return self._executor.run(
            self._compiled, given, fetch_list, scope=self._scope, return_numpy=return_numpy
        )

    @property
    def device_count(self) -> int:
        """1: a process has one place."""
        return 1
