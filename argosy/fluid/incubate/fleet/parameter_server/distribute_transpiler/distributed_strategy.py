"""The strategies of 1.x for parameter servers, and the strategy of fleet 2.0 that each is equal to.

StrategyFactory.create_sync_strategy()           a_sync = False
StrategyFactory.create_async_strategy()          a_sync = True
StrategyFactory.create_half_async_strategy()     a_sync = True, a_sync_configs = {"half_async": True}
StrategyFactory.create_geo_strategy(100)         a_sync = True, a_sync_configs = {"k_steps": 100}
"""

# SPDX-License-Identifier: Apache-2.0
from typing import Any, ClassVar, TypeVar

from argosy.distributed.fleet.distributed_strategy import DistributedStrategy as FleetStrategy
from argosy.engine import env
from argosy.engine.errors import ConfigError
from argosy.engine.log import logger
from argosy.fluid.incubate.fleet.parameter_server.distribute_transpiler.runtime_configs import (
    TrainerRuntimeConfig,
)
from argosy.fluid.transpiler.config import DistributeTranspilerConfig, ServerRuntimeConfig
from argosy.framework.checks import integer
from argosy.framework.missing import missing
from argosy.static.strategies import BuildStrategy, ExecutionStrategy

__all__ = [
    "AsyncStrategy",
    "DistributedStrategy",
    "GeoStrategy",
    "HalfAsyncStrategy",
    "StrategyFactory",
    "SyncStrategy",
    "TrainerRuntimeConfig",
]

_Config = TypeVar("_Config")


class DistributedStrategy:
    """The settings of a job with parameter servers; a subclass selects the mode."""

    mode: ClassVar[str]
    """sync, async, half_async or geo."""

    def __init__(self) -> None:
        self._program_config = DistributeTranspilerConfig()
        self._trainer_runtime_config = TrainerRuntimeConfig()
        self._server_runtime_config = ServerRuntimeConfig()
        self._execute_strategy, self._build_strategy = ExecutionStrategy(), BuildStrategy()
        self._execute_strategy.num_threads = env.number("CPU_NUM", default=1)
        self._set_mode()

    def _set_mode(self) -> None:
        """Write the mode into the program config; the strategy decides, whatever was set there."""
        config, is_sync = self._program_config, self.mode == "sync"
        config.runtime_split_send_recv = False  # first: it excludes sync_mode
        config.sync_mode = is_sync
        config.runtime_split_send_recv = not is_sync
        config.half_async = self.mode == "half_async"
        config.geo_sgd_mode = self.mode == "geo"
        self._build_strategy.async_mode = not is_sync
        self._execute_strategy.use_thread_barrier = self.mode == "half_async"

    def get_program_config(self) -> DistributeTranspilerConfig:
        """How variables are placed on the servers."""
        return self._program_config

    def set_program_config(self, config: DistributeTranspilerConfig | dict[str, Any]) -> None:
        """Replace it, or set fields of it; the mode remains that of the strategy."""
        self._program_config = _updated(self._program_config, config)
        self._set_mode()

    def get_trainer_runtime_config(self) -> TrainerRuntimeConfig:
        """How a worker sends gradients."""
        return self._trainer_runtime_config

    def set_trainer_runtime_config(self, config: TrainerRuntimeConfig | dict[str, Any]) -> None:
        """Replace it, or set entries of it."""
        if isinstance(config, dict):
            self._trainer_runtime_config.update(config)
        else:
            self._trainer_runtime_config = _updated(self._trainer_runtime_config, config)

    def get_server_runtime_config(self) -> ServerRuntimeConfig:
        """The threads of a server."""
        return self._server_runtime_config

    def set_server_runtime_config(self, config: ServerRuntimeConfig | dict[str, Any]) -> None:
        """Replace it, or set fields of it."""
        self._server_runtime_config = _updated(self._server_runtime_config, config)

    def get_execute_strategy(self) -> ExecutionStrategy:
        """How the executor runs a step."""
        return self._execute_strategy

    def set_execute_strategy(self, config: ExecutionStrategy | dict[str, Any]) -> None:
        """Replace it, or set fields of it."""
        self._execute_strategy = _updated(self._execute_strategy, config)

    def get_build_strategy(self) -> BuildStrategy:
        """Which passes rewrite the program."""
        return self._build_strategy

    def set_build_strategy(self, config: BuildStrategy | dict[str, Any]) -> None:
        """Replace it, or set fields of it."""
        self._build_strategy = _updated(self._build_strategy, config)

    def _to_fleet(self) -> FleetStrategy:
        """The strategy of fleet 2.0 with these settings; how variables are split is not part of it."""
        config, strategy = self._program_config, FleetStrategy()
        strategy.a_sync = self.mode != "sync"
        settings: dict[str, Any] = {"launch_barrier": config.wait_port}
        if self.mode == "half_async":
            settings["half_async"] = True
        if self.mode == "geo":
            settings["k_steps"] = config.geo_sgd_need_push_nums
        strategy.a_sync_configs = (
            settings | _compensation(config) | self._trainer_runtime_config.a_sync_configs()
        )
        strategy.build_strategy = self._build_strategy
        strategy.execution_strategy = self._execute_strategy
        if changed := self._server_runtime_config.changed():
            logger.warning(
                "ServerRuntimeConfig: %s: no effect; set the environment variables FLAGS%s of the servers",
                *(", ".join(changed), ", FLAGS".join(changed)),
            )
        return strategy


class SyncStrategy(DistributedStrategy):
    """The servers update with the mean of all workers' gradients, once per step."""

    mode = "sync"


class AsyncStrategy(DistributedStrategy):
    """The servers update with each gradient as it arrives."""

    mode = "async"


class HalfAsyncStrategy(DistributedStrategy):
    """The servers update as gradients arrive, and the workers wait for each other after each step."""

    mode = "half_async"


class GeoStrategy(DistributedStrategy):
    """The workers update locally, and exchange their changes every `update_frequency` steps."""

    mode = "geo"

    def __init__(self, update_frequency: int = 100) -> None:
        super().__init__()
        self._program_config.geo_sgd_need_push_nums = integer("update_frequency", update_frequency, least=1)


class StrategyFactory:
    """Creates a strategy of each mode."""

    @staticmethod
    def create_sync_strategy() -> SyncStrategy:
        """A new SyncStrategy."""
        return SyncStrategy()

    @staticmethod
    def create_half_async_strategy() -> HalfAsyncStrategy:
        """A new HalfAsyncStrategy."""
        return HalfAsyncStrategy()

    @staticmethod
    def create_async_strategy() -> AsyncStrategy:
        """A new AsyncStrategy."""
        return AsyncStrategy()

    @staticmethod
    def create_geo_strategy(update_frequency: int = 100) -> GeoStrategy:
        """A new GeoStrategy; the workers exchange changes every `update_frequency` steps."""
        return GeoStrategy(update_frequency)


def strategy_of(given: DistributedStrategy | DistributeTranspilerConfig | None) -> DistributedStrategy:
    """The strategy for the argument of `fleet.distributed_optimizer`; without one, asynchronous as in 1.8."""
    if isinstance(given, DistributedStrategy):
        return given
    if given is None:
        return AsyncStrategy()
    if not isinstance(given, DistributeTranspilerConfig):
        raise ConfigError(
            f"the strategy is a {type(given).__name__}; use StrategyFactory.create_…_strategy(), or a "
            "DistributeTranspilerConfig"
        )
    strategy: DistributedStrategy
    if given.geo_sgd_mode:
        strategy = GeoStrategy(given.geo_sgd_need_push_nums)
    elif given.sync_mode:
        strategy = SyncStrategy()
    elif given.runtime_split_send_recv and not given.half_async:
        strategy = AsyncStrategy()
    else:  # as in 1.8: without runtime_split_send_recv, asynchronous training is half asynchronous
        strategy = HalfAsyncStrategy()
    strategy.set_program_config(given)
    return strategy


def _updated(current: _Config, given: Any) -> _Config:
    """`given`, if it is of the same class; a dict: `current` with its items assigned."""
    if isinstance(given, dict):
        for name, value in given.items():
            setattr(current, name, value)
        return current
    if not isinstance(given, type(current)):
        kind = type(current).__name__
        raise ConfigError(f"the config is a {type(given).__name__}; give a {kind}, or a dict of its fields")
    return given


def _compensation(config: DistributeTranspilerConfig) -> dict[str, Any]:
    """The settings of DC-ASGD."""
    if not config.enable_dc_asgd:
        return {}
    if config.is_assigned("dc_asgd_decay"):
        raise ConfigError(
            "DistributeTranspilerConfig.dc_asgd_decay is for fluid.DistributeTranspiler; leave it at 0.95 with fleet"
        )
    configs: dict[str, Any] = {"dc_asgd": True, "dc_asgd_adaptive": config.dc_asgd_adaptive}
    return configs | (
        {"dc_asgd_lambda": config.dc_asgd_lambda} if config.is_assigned("dc_asgd_lambda") else {}
    )


__getattr__ = missing(__name__, globals())
