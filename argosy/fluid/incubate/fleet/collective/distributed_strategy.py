"""The strategy of 1.x for collective training: a BuildStrategy with further switches.

strategy = DistributedStrategy()
strategy.fuse_all_reduce_ops = True              a field of BuildStrategy
strategy.exec_strategy.num_threads = 1
strategy.use_local_sgd = True                    a switch of fleet: `localsgd` in 2.0
"""

# SPDX-License-Identifier: Apache-2.0
import copy
from typing import Any

from argosy.distributed.fleet.distributed_strategy import DistributedStrategy as FleetStrategy
from argosy.engine import env
from argosy.engine.errors import ConfigError
from argosy.framework.strategy_settings import Field, table
from argosy.static.strategies import BuildStrategy, ExecutionStrategy


class DistFCConfig:
    """Raises a ConfigError: distributed fully connected layers are not supported."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise ConfigError(
            "DistFCConfig: distributed fc layers are not supported; leave strategy.use_dist_fc at False"
        )


class DistributedStrategy(BuildStrategy):
    """The fields of 1.8, with its defaults; unknown names and invalid values raise."""

    title = message = "DistributedStrategy"
    fields = BuildStrategy.fields | table(
        Field("use_local_sgd", "bool", False, "works", "average the parameters after each step"),
        Field("use_dist_fc", "bool", False, "not yet", "distributed fully connected layers"),
        Field("dist_fc_config", "None", None, "works", "settings of use_dist_fc"),
        Field("mode", "str", "nccl2", "works", "both values all-reduce", among=("nccl2", "collective")),
        Field(
            "collective_mode",
            "str or None",
            None,
            "works",
            "with mode collective: what is all-reduced",
            among=("grad_allreduce", "local_sgd"),
        ),
        Field("forward_recompute", "bool", False, "works", "recompute activations in backward"),
        Field("recompute_checkpoints", "list of names", (), "works", "the activations to store"),
        Field("use_amp", "bool", False, "works", "automatic mixed precision"),
        Field("amp_loss_scaling", "float", 2.0**15, "works", "the initial scale of the loss", above=0),
        Field("exec_strategy", ExecutionStrategy, ExecutionStrategy, "works", "how the executor runs a step"),
        Field("_ut4grad_allreduce", "bool", False, "works", "the same as collective_mode grad_allreduce"),
    )

    def _averages_parameters(self) -> bool:
        """True for local SGD; raises if the switches that select it contradict each other."""
        if self.use_local_sgd and (self._ut4grad_allreduce or self.collective_mode == "grad_allreduce"):
            other = "_ut4grad_allreduce" if self._ut4grad_allreduce else "collective_mode"
            raise ConfigError(
                f"strategy.use_local_sgd and strategy.{other} are both set; the first averages parameters, the second "
                "gradients: leave one of them out"
            )
        if self.use_local_sgd or self._ut4grad_allreduce:
            return bool(self.use_local_sgd)
        if self.collective_mode is not None and self.mode != "collective":
            raise ConfigError(
                f"strategy.collective_mode is {self.collective_mode!r}, which needs strategy.mode = 'collective'"
            )
        if self.collective_mode is None and self.mode == "collective":
            raise ConfigError(
                "strategy.mode is 'collective', which needs strategy.collective_mode: 'grad_allreduce' or 'local_sgd'"
            )
        return bool(self.collective_mode == "local_sgd")

    def _to_fleet(self) -> FleetStrategy:
        """The strategy of fleet 2.0 with these settings."""
        strategy = FleetStrategy()
        strategy.localsgd = self._averages_parameters()
        for name in BuildStrategy.fields:
            if self.is_assigned(name):
                setattr(strategy.build_strategy, name, getattr(self, name))
        strategy.execution_strategy = copy.deepcopy(self.exec_strategy)
        # Several communicators need all-reduces that overlap.
        strategy.sync_nccl_allreduce = env.flag("FLAGS_sync_nccl_allreduce", self.nccl_comm_num == 1)
        if self.forward_recompute:
            strategy.recompute = True
            strategy.recompute_configs = {"checkpoints": self.recompute_checkpoints}
        if self.use_amp:
            strategy.amp = True
            strategy.amp_configs = {"init_loss_scaling": self.amp_loss_scaling}
        return strategy
