"""The 1.x strategies for parameter servers: what each is in fleet 2.0, and what is rejected."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest

from argosy import fluid
from argosy.distributed.fleet.ps_mode import mode_of
from argosy.engine.errors import ConfigError, UnknownNameError
from argosy.fluid.incubate.fleet.parameter_server.distribute_transpiler.distributed_strategy import (
    AsyncStrategy,
    DistributedStrategy,
    GeoStrategy,
    HalfAsyncStrategy,
    StrategyFactory,
    SyncStrategy,
    TrainerRuntimeConfig,
    strategy_of,
)
from argosy.fluid.transpiler.distribute_transpiler import ServerRuntimeConfig

FACTORY = {
    "sync": StrategyFactory.create_sync_strategy,
    "async": StrategyFactory.create_async_strategy,
    "half_async": StrategyFactory.create_half_async_strategy,
    "geo": StrategyFactory.create_geo_strategy,
}


@pytest.mark.parametrize("mode", FACTORY)
def test_each_strategy_is_a_mode_of_fleet(mode: str) -> None:
    strategy = FACTORY[mode]()
    assert mode_of(strategy._to_fleet()) == mode
    assert strategy.get_build_strategy().async_mode is (mode != "sync")
    assert strategy.get_execute_strategy().use_thread_barrier is (mode == "half_async")


def test_geo_exchanges_changes_every_n_steps() -> None:
    strategy = StrategyFactory.create_geo_strategy(update_frequency=7)
    assert strategy.get_program_config().geo_sgd_need_push_nums == 7
    assert strategy._to_fleet().a_sync_configs["k_steps"] == 7
    with pytest.raises(ConfigError, match="update_frequency is 0"):
        GeoStrategy(0)


def test_the_mode_stays_when_the_program_config_is_replaced() -> None:
    strategy = AsyncStrategy()
    strategy.set_program_config(fluid.DistributeTranspilerConfig())
    strategy.set_program_config({"min_block_size": 9000, "sync_mode": False})
    config = strategy.get_program_config()
    assert (config.sync_mode, config.runtime_split_send_recv, config.min_block_size) == (False, True, 9000)
    assert mode_of(strategy._to_fleet()) == "async"


def test_configs_are_replaced_by_objects_and_updated_by_dicts() -> None:
    strategy = SyncStrategy()
    strategy.set_build_strategy({"memory_optimize": False})
    strategy.set_execute_strategy({"num_threads": 3})
    strategy.set_server_runtime_config(ServerRuntimeConfig())
    strategy.set_trainer_runtime_config(TrainerRuntimeConfig())
    converted = strategy._to_fleet()
    assert converted.build_strategy.memory_optimize is False
    assert converted.execution_strategy.num_threads == 3
    build = fluid.BuildStrategy()
    strategy.set_build_strategy(build)
    assert strategy.get_build_strategy() is build


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("program_config", {"min_blocks": 1}, "has no field 'min_blocks' .did you mean 'min_block_size'"),
        ("program_config", 3, "the config is a int; give a DistributeTranspilerConfig, or a dict"),
        ("build_strategy", fluid.ExecutionStrategy(), "give a BuildStrategy, or a dict"),
        ("server_runtime_config", {"_rpc_threads": 1}, "ServerRuntimeConfig has no field '_rpc_threads'"),
        ("trainer_runtime_config", {"communicator_queue": 1}, "has no flag 'communicator_queue'"),
    ],
)
def test_invalid_configs_are_rejected(name: str, given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        getattr(SyncStrategy(), f"set_{name}")(given)


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({}, SyncStrategy),
        ({"sync_mode": False}, HalfAsyncStrategy),
        ({"sync_mode": False, "runtime_split_send_recv": True}, AsyncStrategy),
        ({"sync_mode": False, "runtime_split_send_recv": True, "half_async": True}, HalfAsyncStrategy),
        ({"sync_mode": False, "runtime_split_send_recv": True, "geo_sgd_mode": True}, GeoStrategy),
    ],
)
def test_a_transpiler_config_selects_the_mode_as_in_1_8(
    fields: dict[str, bool], kind: type[DistributedStrategy]
) -> None:
    config = fluid.DistributeTranspilerConfig()
    for name, value in fields.items():
        setattr(config, name, value)
    strategy = strategy_of(config)
    assert type(strategy) is kind
    assert strategy.get_program_config() is config


def test_without_a_strategy_training_is_asynchronous() -> None:
    assert type(strategy_of(None)) is AsyncStrategy


def test_dc_asgd_is_a_setting_of_asynchronous_training() -> None:
    strategy = AsyncStrategy()
    strategy.set_program_config({"enable_dc_asgd": True, "dc_asgd_lambda": 0.5})
    configs = strategy._to_fleet().a_sync_configs
    assert (configs["dc_asgd"], configs["dc_asgd_lambda"], configs["dc_asgd_adaptive"]) == (True, 0.5, False)
    strategy.set_program_config({"dc_asgd_decay": 0.5})
    with pytest.raises(ConfigError, match=r"dc_asgd_decay is for fluid\.DistributeTranspiler"):
        strategy._to_fleet()


def test_threads_of_servers_are_set_by_the_environment(caplog: pytest.LogCaptureFixture) -> None:
    strategy = SyncStrategy()
    strategy.set_server_runtime_config({"_rpc_send_thread_num": 4, "_rpc_get_thread_num": 4})
    strategy._to_fleet()
    assert "FLAGS_rpc_send_thread_num, FLAGS_rpc_get_thread_num of the servers" in caplog.text
    with pytest.raises(UnknownNameError):
        _ = fluid.incubate.fleet.parameter_server.distribute_transpiler.distributed_strategy.FastStrategy
