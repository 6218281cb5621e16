"""The 1.x interface of fleet: objects with the methods of 1.x for the one `Fleet` of this process.

Fleet ──┬── Collective        fluid.incubate.fleet.collective.fleet
        └── FleetTranspiler   fluid.incubate.fleet.parameter_server.distribute_transpiler.fleet
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

import numpy as np

from argosy.distributed.fleet.api import fleet as process_fleet
from argosy.distributed.fleet.base import distributed_optimizer
from argosy.distributed.fleet.base.distributed_optimizer import Updates
from argosy.distributed.fleet.base.role_maker import PaddleCloudRoleMaker, RoleMakerBase
from argosy.distributed.fleet.base.util_factory import UtilBase
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program
from argosy.engine.ir.variable import Variable
from argosy.engine.runtime.executor import Executor
from argosy.framework.missing import missing

__all__ = ["DistributedOptimizer", "Fleet", "Mode"]


class Mode:
    """The kinds of jobs of 1.x; PSLIB is not supported."""

    TRANSPILER = 1
    PSLIB = 2
    COLLECTIVE = 3


class Fleet:
    """What both kinds of jobs have in common; every object is a view of the one fleet of this process."""

    def __init__(self, mode: int) -> None:
        self._mode = mode
        self._fleet = process_fleet

    def init(self, role_maker: RoleMakerBase | None = None) -> None:
        """Read the role of this process; by default from the launcher's environment."""
        is_collective = self._mode == Mode.COLLECTIVE
        roles = PaddleCloudRoleMaker(is_collective=is_collective) if role_maker is None else role_maker
        if isinstance(roles, RoleMakerBase) and roles._is_collective != is_collective:
            wanted = "collective jobs" if is_collective else "jobs with parameter servers"
            raise ConfigError(
                f"fleet.init: this fleet is for {wanted}, and the {type(roles).__name__} is not; use "
                f"PaddleCloudRoleMaker(is_collective={is_collective})"
            )
        self._fleet.init(roles)

    # --- roles ----------------------------------------------------------------------------------------

    def is_first_worker(self) -> bool:
        """True on worker 0."""
        return self._fleet.is_first_worker()

    def is_worker(self) -> bool:
        """True on a worker."""
        return self._fleet.is_worker()

    def is_server(self) -> bool:
        """True on a parameter server."""
        return self._fleet.is_server()

    def is_xpu(self) -> bool:
        """False: XPUs are not supported."""
        return False

    def worker_index(self) -> int:
        """The index of this worker."""
        return self._fleet.worker_index()

    def worker_num(self) -> int:
        """The number of workers."""
        return self._fleet.worker_num()

    def server_index(self) -> int:
        """The index of this server."""
        return self._fleet.server_index()

    def server_num(self) -> int:
        """The number of servers."""
        return self._fleet.server_num()

    def worker_endpoints(self, to_string: bool = False) -> list[str] | str:
        """host:port of every worker, as a list or joined by commas."""
        return self._fleet.worker_endpoints(to_string)

    def server_endpoints(self, to_string: bool = False) -> list[str] | str:
        """host:port of every server, as a list or joined by commas."""
        return self._fleet.server_endpoints(to_string)

    # --- workers --------------------------------------------------------------------------------------

    @property
    def util(self) -> UtilBase:
        """`fleet.util` of 2.0, which data sets use for `global_shuffle(fleet)`."""
        return self._fleet.util

    def barrier_worker(self) -> None:
        """Wait until every worker has called it."""
        self._fleet.barrier_worker()

    def all_reduce_worker(self, input: Any, output: Any) -> None:
        """Write the sums of `input` over the workers into `output`, a list or array of the same length."""
        total = self.util.all_reduce(np.asarray(input), "sum", "worker")
        if len(output) != len(total):
            raise ConfigError(
                f"all_reduce_worker: output has {len(output)} elements, input {len(total)}; give as many"
            )
        output[:] = total if isinstance(output, np.ndarray) else total.tolist()

    def split_files(self, files: list[str]) -> list[str]:
        """This worker's contiguous part of the files; the first `len(files) % workers` parts have one file more."""
        return self.util.get_file_shard(files)

    def init_worker(self) -> None:
        """Connect to the servers; before or after the startup program was run."""
        self._fleet.init_worker()

    def stop_worker(self) -> None:
        """Disconnect from the servers, which exit after the last worker has disconnected."""
        self._fleet.stop_worker()

    # --- programs and files ---------------------------------------------------------------------------

    @property
    def main_program(self) -> Program:
        """The program of the last `minimize`; after `init_server`, this server's program."""
        return self._fleet.main_program

    @property
    def startup_program(self) -> Program:
        """The startup program of the last `minimize`; after `init_server`, this server's startup program."""
        return self._fleet.startup_program

    def save_inference_model(
        self,
        executor: Executor,
        dirname: str,
        feeded_var_names: list[str],
        target_vars: list[Variable],
        main_program: Program | None = None,
        export_for_deployment: bool = True,
    ) -> None:
        """Write a model for inference; worker 0 writes it in a collective job, the calling worker in others."""
        if not export_for_deployment:
            raise ConfigError(
                "export_for_deployment=False is not supported; fluid.io.save saves the whole program"
            )
        program = self.main_program if main_program is None else main_program
        self._fleet.save_inference_model(executor, dirname, feeded_var_names, target_vars, program)


class DistributedOptimizer:
    """Wraps an optimizer: `minimize` also distributes the program; everything else is the inner optimizer's."""

    def __init__(self, optimizer: Any, strategy: Any = None) -> None:
        self._strategy = strategy
        self._optimizer: distributed_optimizer.DistributedOptimizer = process_fleet.distributed_optimizer(
            optimizer
        )

    def _minimize(
        self,
        loss: Variable | Sequence[Variable],
        startup_program: Program | Sequence[Program] | None,
        parameter_list: Any,
        no_grad_set: Any,
    ) -> Updates:
        return self._optimizer.minimize(
            _single("loss", loss),
            None if startup_program is None else _single("startup_program", startup_program),
            parameter_list,
            no_grad_set,
        )

    def __getattr__(self, name: str) -> Any:
        if name == "_optimizer":
            raise AttributeError(name)  # during copy.copy the attribute does not exist yet
        return getattr(self._optimizer, name)


def _single(what: str, given: Any) -> Any:
    """The element of a list of one; 1.x accepts lists for pslib only."""
    if not isinstance(given, list | tuple):
        return given
    if len(given) != 1:
        raise ConfigError(f"minimize: {what} is a list of {len(given)}; a job trains one: give it alone")
    return given[0]


__getattr__ = missing(__name__, globals())
