"""The fleet of 1.x for collective training.

fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
optimizer = fleet.distributed_optimizer(optimizer, strategy)
optimizer.minimize(loss)
exe.run(fleet.startup_program);  exe.run(fleet.main_program, …)
"""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from argosy.distributed.fleet.base.distributed_optimizer import Updates
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program
from argosy.engine.ir.variable import Variable
from argosy.engine.log import logger
from argosy.engine.runtime.executor import Executor
from argosy.fluid.incubate.fleet.base.fleet_base import DistributedOptimizer, Fleet, Mode
from argosy.fluid.incubate.fleet.collective import checkpoints
from argosy.fluid.incubate.fleet.collective.checkpoints import TrainStatus
from argosy.fluid.incubate.fleet.collective.distributed_strategy import DistributedStrategy


class CollectiveOptimizer(DistributedOptimizer):
    """Minimizes, and all-reduces the gradients or averages the parameters, as the strategy says."""

    _strategy: DistributedStrategy

    def __init__(self, optimizer: Any, strategy: DistributedStrategy | None = None) -> None:
        strategy = DistributedStrategy() if strategy is None else strategy
        if not isinstance(strategy, DistributedStrategy):
            raise ConfigError(
                f"the strategy is a {type(strategy).__name__}; use DistributedStrategy of "
                "fluid.incubate.fleet.collective"
            )
        super().__init__(optimizer, strategy)
        self.print_config = False

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
    ) -> Updates:
        """Add backward, communication and updates; returns update nodes and (parameter, gradient) pairs."""
        self._optimizer.strategy = self._strategy._to_fleet()
        if self.print_config:
            print(self._strategy, flush=True)
        updates = self._minimize(loss, startup_program, parameter_list, no_grad_set)
        self._strategy.freeze()
        return updates


class Collective(Fleet):
    """The fleet of a collective job."""

    def __init__(self) -> None:
        super().__init__(Mode.COLLECTIVE)

    def distributed_optimizer(
        self, optimizer: Any, strategy: DistributedStrategy | None = None
    ) -> CollectiveOptimizer:
        """Wrap the optimizer for this job."""
        return CollectiveOptimizer(optimizer, strategy)

    def init_server(self, model_dir: str | None = None) -> None:
        """Logs a warning: a collective job has no servers."""
        logger.warning("fleet.init_server does nothing in a collective job")

    def run_server(self) -> None:
        """Logs a warning: a collective job has no servers."""
        logger.warning("fleet.run_server does nothing in a collective job")

    @property
    def _origin_program(self) -> Program:
        """The main program, which scripts of 1.x save."""
        return self.main_program

    _transpiled_program = _origin_program

    def save_persistables(
        self,
        executor: Executor,
        dirname: str,
        main_program: Program | None = None,
        filename: str | None = None,
    ) -> None:
        """Write the program's variables on rank 0; other ranks may call it or not, and do not wait."""
        program = self.main_program if main_program is None else main_program
        self._fleet._save_persistables(executor, dirname, program, filename)

    def save_checkpoint(
        self,
        executor: Executor,
        path: str,
        trainer_id: int,
        train_status: TrainStatus,
        main_program: Program | None = None,
        fs: Any = None,
        local_cache_path: str = ".cache",
        remain_all_checkpoint: bool = True,
    ) -> None:
        """Write the program's variables and the number of the epoch to a new directory below `path`, on rank 0.

        `remain_all_checkpoint=False` removes older ones. `trainer_id` and `local_cache_path` exist for Paddle.
        """
        checkpoints.check_file_system(fs)
        with checkpoints.new_checkpoint(path, train_status, self.is_first_worker()) as directory:
            self.save_persistables(executor, directory, main_program)
        if not remain_all_checkpoint and self.is_first_worker():
            checkpoints.remove_older(path)

    def load_checkpoint(
        self,
        executor: Executor,
        path: str,
        trainer_id: int,
        main_program: Program | None = None,
        fs: Any = None,
        local_cache_path: str = ".cache",
        ignore_empty: bool = True,
    ) -> TrainStatus | None:
        """Read the newest checkpoint below `path`; None if there is none, which raises without `ignore_empty`."""
        checkpoints.check_file_system(fs)
        program = self.main_program if main_program is None else main_program
        return checkpoints.load_newest(executor, path, program, ignore_empty)

    def clean_redundant_checkpoints(self, root_path: str, fs: Any = None, checkpoint_num: int = 1) -> None:
        """Remove all checkpoints below `root_path` but the newest `checkpoint_num`."""
        checkpoints.check_file_system(fs)
        checkpoints.remove_older(root_path, checkpoint_num)


fleet = Collective()
