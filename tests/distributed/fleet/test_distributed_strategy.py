"""DistributedStrategy: Paddle's fields and defaults, the seeds' strategies, contradictions."""

# SPDX-License-Identifier: Apache-2.0
import copy
from dataclasses import replace
from typing import Any

import pytest

from argosy.distributed.fleet.distributed_strategy import DistributedStrategy, Mode
from argosy.distributed.fleet.strategy_checks import check_collective, check_look_ahead
from argosy.engine.errors import ConfigError, UnknownNameError
from argosy.static.input import data
from argosy.static.strategies import BuildStrategy, ExecutionStrategy
from tests.distributed.fleet.strategy_pairs import SWITCHES


class AllThere(DistributedStrategy):
    """A DistributedStrategy of the day when every switch works, to test what the switches do to each other."""

    fields = {n: replace(f, status="works") for n, f in DistributedStrategy.fields.items()}  # noqa: RUF012


class BuildAllThere(BuildStrategy):
    fields = {n: replace(f, status="works") for n, f in BuildStrategy.fields.items()}  # noqa: RUF012


def test_has_the_switches_and_defaults_of_paddle_2_0() -> None:
    strategy = {n: v for n, v in DistributedStrategy().as_dict().items() if not isinstance(v, dict)}
    assert not any(strategy.pop(name) for name in [n for n, v in strategy.items() if v is False])
    build, execution = strategy.pop("build_strategy"), strategy.pop("execution_strategy")
    assert strategy == {
        "mode": Mode.COLLECTIVE,
        "a_sync": True,
        "sync_nccl_allreduce": True,
        "nccl_comm_num": 1,
        "hierarchical_allreduce_inter_nranks": 1,
        "hierarchical_allreduce_algorithm": "reduce_scatter",  # ours
        "fuse_all_reduce_ops": True,
        "fuse_grad_size_in_MB": 32,
        "_fuse_grad_size_in_TFLOPS": 50.0,
        "cudnn_exhaustive_search": True,
        "conv_workspace_size_limit": 4000,
        "cudnn_batchnorm_spatial_persistent": True,
        "last_comm_group_size_MB": 1.0,
    }
    assert not build.fuse_broadcast_ops
    assert (execution.num_threads, execution.num_iteration_per_drop_scope) == (1, 10)


def test_has_the_configs_of_paddle_2_0_and_2_1() -> None:
    strategy = DistributedStrategy()
    assert strategy.amp_configs == {
        "init_loss_scaling": 32768.0,
        "incr_every_n_steps": 1000,
        "decr_every_n_nan_or_inf": 2,
        "incr_ratio": 2.0,
        "decr_ratio": 0.8,
        "use_dynamic_loss_scaling": True,
        "custom_white_list": [],
        "custom_black_list": [],
        "custom_black_varnames": [],
        "use_pure_fp16": False,
        "use_fp16_guard": True,
        "dtype": "bfloat16",
    }
    assert strategy.recompute_configs == {
        "checkpoints": [],
        "enable_offload": False,
        "checkpoint_shape": [],
        "memory_budget_MB": 0.0,
    }
    assert strategy.a_sync_configs["k_steps"] == -1
    assert strategy.gradient_merge_configs == {"k_steps": 1, "avg": True}
    assert strategy.sharding_configs.keys() >= {"sharding_group_size", "sharding_degree", "hybrid_dp"}


def test_every_field_takes_its_default_and_says_what_it_is() -> None:
    strategy = DistributedStrategy()
    for name, field in strategy.fields.items():
        if name != "a_sync":  # assigning it sets k_steps
            setattr(strategy, name, getattr(strategy, name))
        assert field.help, name
    assert strategy == DistributedStrategy()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("amp_configs", {"init_loss_scaling": 32768, "decr_ratio": 0.5, "custom_white_list": []}),
        (
            "dgc_configs",
            {"rampup_begin_step": 2504, "rampup_step": 3756, "sparsity": [0.984375, 0.996, 0.999]},
        ),
        ("adaptive_localsgd_configs", {"init_k_steps": 1, "begin_step": 1}),
        ("gradient_merge_configs", {"k_steps": 4, "avg": True}),
        ("lamb_configs", {"lamb_weight_decay": 0.01, "exclude_from_weight_decay": ["layer_norm"]}),
        ("lars_configs", {"lars_coeff": 0.001, "exclude_from_weight_decay": ["batch_norm", ".b_0"]}),
        ("recompute_configs", {"checkpoints": ["res2a.add.output.5.tmp_0"]}),
        (
            "sharding_configs",
            {
                "sharding_segment_strategy": "segment_broadcast_MB",
                "segment_broadcast_MB": 32,
                "sharding_degree": 2,
                "dp_degree": 2,
            },
        ),
        ("a_sync_configs", {"k_steps": 100}),
    ],
)
def test_takes_the_configs_of_fleetx_examples(name: str, value: dict[str, Any]) -> None:
    strategy = DistributedStrategy()
    setattr(strategy, name, value)
    assert getattr(strategy, name).items() >= value.items()


@pytest.mark.parametrize("name", ["pipeline", "elastic", "tensor_parallel", "find_unused_parameters"])
def test_a_switch_that_is_not_there_yet_raises_with_its_name(name: str) -> None:
    strategy = DistributedStrategy()
    with pytest.raises(ConfigError, match=f"DistributedStrategy.{name} is True, which is not supported"):
        setattr(strategy, name, True)


def test_eager_settings_raise_when_changed() -> None:
    strategy = DistributedStrategy()
    with pytest.raises(ConfigError, match="last_comm_group_size_MB is 2.0.*eager mode only"):
        strategy.last_comm_group_size_MB = 2
    with pytest.raises(ConfigError, match=r"hybrid_configs\['mp_degree'\] is 2"):
        strategy.hybrid_configs = {"mp_degree": 2}


def test_the_seeds_integer_is_a_number_of_gradients() -> None:
    strategy = DistributedStrategy()
    strategy._fuse_grad_size_in_TFLOPS = 20
    assert strategy._fuse_grad_size_in_TFLOPS == 20.0


def test_names_of_old_documents_lead_to_the_right_ones() -> None:
    strategy = DistributedStrategy()
    with pytest.raises(UnknownNameError, match="did you mean '_fuse_grad_size_in_TFLOPS'"):
        strategy.fuse_grad_size_in_TFLOPS = 50
    with pytest.raises(UnknownNameError, match=r"use .build_strategy.fuse_bn_act_ops"):
        strategy.fuse_bn_act_ops = True


def test_assigning_a_sync_sets_k_steps() -> None:
    strategy = DistributedStrategy()
    strategy.a_sync = True
    assert strategy.a_sync_configs["k_steps"] == 0
    strategy.a_sync_configs = {"k_steps": 400}
    strategy.a_sync = False
    assert strategy.a_sync_configs["k_steps"] == 0
    with pytest.raises(ConfigError, match="a_sync is 1"):
        strategy.a_sync = 1


def test_build_and_execution_strategy_are_live_and_keep_every_field() -> None:
    strategy = DistributedStrategy()
    strategy.build_strategy.sync_batch_norm = True
    assert strategy.build_strategy.sync_batch_norm
    mine = BuildStrategy()
    mine.debug_graphviz_path = "step.dot"
    mine.gradient_scale_strategy = BuildStrategy.GradientScaleStrategy.One
    strategy.build_strategy = mine
    assert strategy.build_strategy == mine
    strategy.execution_strategy = ExecutionStrategy()
    assert strategy.execution_strategy.num_threads == 0
    with pytest.raises(ConfigError, match="use an object of BuildStrategy"):
        strategy.build_strategy = ExecutionStrategy()


def test_a_copy_is_independent_below_too() -> None:
    strategy = DistributedStrategy()
    other = copy.deepcopy(strategy)
    other.build_strategy.enable_inplace = False
    other.amp_configs = {"decr_ratio": 0.5}
    assert strategy == DistributedStrategy()
    strategy.freeze()
    with pytest.raises(ConfigError, match="BuildStrategy.enable_inplace is set after a program was built"):
        strategy.build_strategy.enable_inplace = False


def test_the_default_contradicts_nothing() -> None:
    for ranks, hosts in [(1, 1), (2, 1), (3, 2), (8, 4)]:
        check_collective(DistributedStrategy(), ranks, hosts)


@pytest.mark.parametrize(
    ("one", "other"),
    [("amp", "dgc"), ("fp16_allreduce", "dgc"), ("localsgd", "adaptive_localsgd"), ("lars", "lamb")],
)
def test_two_switches_that_exclude_each_other_are_both_named(one: str, other: str) -> None:
    options = AllThere()
    setattr(options, one, True)
    check_collective(options, 2, 1)
    setattr(options, other, True)
    with pytest.raises(ConfigError, match=f"strategy.{one} and strategy.{other} are both on"):
        check_collective(options, 2, 1)


def test_recompute_wants_checkpoints() -> None:
    options = AllThere()
    options.recompute = True
    with pytest.raises(ConfigError, match=r"strategy.recompute is on.*checkpoints.*is empty"):
        check_collective(options, 2, 1)
    options.recompute_configs = {"checkpoints": ["a"]}
    check_collective(options, 2, 1)


def test_recompute_takes_names_variables_and_auto() -> None:
    options = DistributedStrategy()
    x = data("x", [None, 4])
    options.recompute_configs = {"checkpoints": [x * 2, "b"]}
    assert options.recompute_configs["checkpoints"] == ["elementwise_mul_0.tmp_0", "b"]
    options.recompute_configs = {"checkpoints": "auto", "memory_budget_MB": 500}
    assert options.recompute_configs["checkpoints"] == ["auto"]
    for wrong, message in (
        ({"checkpoints": "a"}, "use a list of names or Variables, or 'auto'"),
        ({"checkpoints": [3]}, r"checkpoints'\]\[0\] is 3; use a string"),
        ({"memory_budget_MB": -1}, "memory_budget_MB"),
        ({"enable_offload": True}, r"enable_offload'\] is True, which is not supported"),
    ):
        with pytest.raises(ConfigError, match=message):
            options.recompute_configs = wrong


def test_gradient_merge_wants_at_least_one_step() -> None:
    with pytest.raises(ConfigError, match=r"gradient_merge_configs\['k_steps'\] is 0"):
        DistributedStrategy().gradient_merge_configs = {"k_steps": 0}


def test_hierarchical_groups_must_come_out_even() -> None:
    strategy = AllThere()
    strategy.use_hierarchical_allreduce = True
    strategy.hierarchical_allreduce_inter_nranks = 8
    for ranks in (1, 8, 16):
        check_collective(strategy, ranks, 1)
    with pytest.raises(ConfigError, match="inter_nranks=8 does not divide 12 ranks"):
        check_collective(strategy, 12, 2)
    strategy.hierarchical_allreduce_inter_nranks = 1
    with pytest.raises(ConfigError, match="7 ranks do not divide over 2 hosts"):
        check_collective(strategy, 7, 2)


def test_a_switch_set_in_both_places_must_agree() -> None:
    options = AllThere()
    options.build_strategy = BuildAllThere()
    options.build_strategy.nccl_comm_num = 3
    assert options.effective("nccl_comm_num") == 3
    check_collective(options, 2, 1)
    options.nccl_comm_num = 2
    with pytest.raises(
        ConfigError, match="strategy.nccl_comm_num is 2, but strategy.build_strategy.nccl_comm_num"
    ):
        check_collective(options, 2, 1)
    options.build_strategy.nccl_comm_num = 2
    check_collective(options, 2, 1)
    assert options.effective("nccl_comm_num") == 2


def test_sync_batch_norm_may_be_set_in_either_place() -> None:
    strategy = DistributedStrategy()
    assert not strategy.effective("sync_batch_norm")
    strategy.sync_batch_norm = False
    strategy.build_strategy.sync_batch_norm = True
    check_collective(strategy, 2, 1)
    assert strategy.effective("sync_batch_norm")


def test_num_trainers_must_be_the_ranks_if_it_is_set() -> None:
    strategy = DistributedStrategy()
    strategy.build_strategy.num_trainers = 2
    check_collective(strategy, 2, 1)
    with pytest.raises(ConfigError, match="num_trainers is 2, but the job has 4 ranks"):
        check_collective(strategy, 4, 1)


@pytest.mark.parametrize("name", [name for name in SWITCHES if name in DistributedStrategy.fields])
def test_a_strategy_that_look_ahead_would_ignore_raises(name: str) -> None:
    """`fp16_allreduce` and `sync_batch_norm` are passes over the program, whatever the optimizer."""
    strategy = DistributedStrategy()
    setattr(strategy, name, True)
    if name in ("fp16_allreduce", "sync_batch_norm"):
        check_look_ahead(strategy)
        return
    with pytest.raises(ConfigError, match=f"strategy.{name} and the optimizer LookAhead"):
        check_look_ahead(strategy)
