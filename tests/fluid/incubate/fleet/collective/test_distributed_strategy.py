"""The 1.x strategy for collective training: its fields, and what each is in fleet 2.0."""

# SPDX-License-Identifier: Apache-2.0
import copy
from typing import Any

import pytest

from argosy import fluid
from argosy.engine.errors import ConfigError, UnknownNameError
from argosy.fluid.incubate.fleet.collective import DistFCConfig, DistributedStrategy

DEFAULTS_OF_1_8: dict[str, Any] = {
    "use_local_sgd": False,
    "use_dist_fc": False,
    "dist_fc_config": None,
    "mode": "nccl2",
    "collective_mode": None,
    "nccl_comm_num": 1,
    "forward_recompute": False,
    "recompute_checkpoints": [],
    "use_amp": False,
    "amp_loss_scaling": 2**15,
    "_ut4grad_allreduce": False,
    "use_hierarchical_allreduce": False,
    "hierarchical_allreduce_inter_nranks": 0,
}


def test_it_is_a_build_strategy_with_the_fields_and_defaults_of_1_8() -> None:
    strategy = DistributedStrategy()
    assert isinstance(strategy, fluid.BuildStrategy)
    assert isinstance(strategy.exec_strategy, fluid.ExecutionStrategy)
    for name, value in DEFAULTS_OF_1_8.items():
        assert getattr(strategy, name) == value, name
    assert strategy.fields.keys() == fluid.BuildStrategy.fields.keys() | DEFAULTS_OF_1_8.keys() | {
        "exec_strategy"
    }
    assert copy.deepcopy(strategy) == strategy


def test_build_and_execution_settings_are_passed_on() -> None:
    strategy = DistributedStrategy()
    strategy.fuse_all_reduce_ops = False
    strategy.enable_inplace = False
    strategy.use_hierarchical_allreduce, strategy.hierarchical_allreduce_inter_nranks = True, 2
    strategy.exec_strategy.num_threads = 4
    converted = strategy._to_fleet()
    assert converted.effective("fuse_all_reduce_ops") is False
    assert converted.build_strategy.enable_inplace is False
    assert converted.effective("use_hierarchical_allreduce") is True
    assert converted.effective("hierarchical_allreduce_inter_nranks") == 2
    assert converted.execution_strategy.num_threads == 4
    assert not converted.build_strategy.is_assigned("fuse_bn_act_ops")
    assert (converted.localsgd, converted.amp, converted.recompute) == (False, False, False)


def test_recompute_and_amp_are_switches_of_fleet() -> None:
    strategy = DistributedStrategy()
    strategy.forward_recompute, strategy.recompute_checkpoints = True, ["a", "b"]
    strategy.use_amp, strategy.amp_loss_scaling = True, 8
    converted = strategy._to_fleet()
    assert (converted.recompute, converted.recompute_configs["checkpoints"]) == (True, ["a", "b"])
    assert (converted.amp, converted.amp_configs["init_loss_scaling"]) == (True, 8.0)


@pytest.mark.parametrize(
    ("fields", "averages"),
    [
        ({"use_local_sgd": True}, True),
        ({"mode": "collective", "collective_mode": "local_sgd"}, True),
        ({"mode": "collective", "collective_mode": "grad_allreduce"}, False),
        ({"_ut4grad_allreduce": True}, False),
    ],
)
def test_what_is_all_reduced(fields: dict[str, Any], averages: bool) -> None:
    strategy = DistributedStrategy()
    for name, value in fields.items():
        setattr(strategy, name, value)
    converted = strategy._to_fleet()
    assert converted.localsgd is averages
    assert (converted.localsgd_configs["k_steps"], converted.localsgd_configs["begin_step"]) == (1, 1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"collective_mode": "local_sgd"}, "needs strategy.mode = 'collective'"),
        ({"mode": "collective"}, "needs strategy.collective_mode: 'grad_allreduce' or 'local_sgd'"),
        (
            {"use_local_sgd": True, "_ut4grad_allreduce": True},
            "use_local_sgd and strategy._ut4grad_allreduce",
        ),
        (
            {"use_local_sgd": True, "mode": "collective", "collective_mode": "grad_allreduce"},
            "use_local_sgd and strategy.collective_mode are both set",
        ),
    ],
)
def test_contradictions_are_rejected(fields: dict[str, Any], message: str) -> None:
    strategy = DistributedStrategy()
    for name, value in fields.items():
        setattr(strategy, name, value)
    with pytest.raises(ConfigError, match=message):
        strategy._to_fleet()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("mode", "nccl", "mode is 'nccl'; use one of 'nccl2', 'collective'"),
        ("collective_mode", "sgd", "use one of 'grad_allreduce', 'local_sgd'"),
        ("use_dist_fc", True, "use_dist_fc is True, which is not supported"),
        ("dist_fc_config", object(), "dist_fc_config is .* which is not supported"),
        ("recompute_checkpoints", 3, "recompute_checkpoints is 3; use a list"),
        ("amp_loss_scaling", 0, "amp_loss_scaling is 0"),
    ],
)
def test_invalid_values_are_rejected(name: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        setattr(DistributedStrategy(), name, value)


def test_unknown_names_are_rejected_with_a_suggestion() -> None:
    with pytest.raises(UnknownNameError, match="no 'use_local_sdg' .did you mean 'use_local_sgd'"):
        DistributedStrategy().use_local_sdg = True
    with pytest.raises(ConfigError, match="distributed fc layers are not supported"):
        DistFCConfig()


@pytest.mark.parametrize(("exported", "waits"), [(None, False), ("1", True), ("0", False)])
def test_several_communicators_overlap_unless_the_environment_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, exported: str | None, waits: bool
) -> None:
    monkeypatch.delenv("FLAGS_sync_nccl_allreduce", raising=False)
    assert DistributedStrategy()._to_fleet().sync_nccl_allreduce is True
    if exported is not None:
        monkeypatch.setenv("FLAGS_sync_nccl_allreduce", exported)
    strategy = DistributedStrategy()
    strategy.nccl_comm_num = 2
    assert strategy._to_fleet().sync_nccl_allreduce is waits
