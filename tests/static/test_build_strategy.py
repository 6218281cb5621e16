"""BuildStrategy and ExecutionStrategy: Paddle's fields and defaults, and what is there of them."""

# SPDX-License-Identifier: Apache-2.0
import copy

import pytest

from argosy.engine.errors import ConfigError, UnknownNameError
from argosy.static.strategies import BuildStrategy


def test_has_the_defaults_of_paddle_2_0() -> None:
    assert BuildStrategy().as_dict() == {
        "enable_sequential_execution": False,
        "fuse_elewise_add_act_ops": False,
        "fuse_bn_act_ops": False,
        "fuse_relu_depthwise_conv": False,
        "fuse_broadcast_ops": True,
        "fuse_all_optimizer_ops": False,
        "enable_inplace": True,
        "enable_backward_optimizer_op_deps": True,
        "cache_runtime_context": False,
        "fuse_bn_add_act_ops": True,
        "enable_auto_fusion": False,
        "enable_addto": False,
        "reduce_strategy": BuildStrategy.ReduceStrategy.AllReduce,
        "gradient_scale_strategy": BuildStrategy.GradientScaleStrategy.CoeffNumDevice,
        "debug_graphviz_path": "",
        "remove_unnecessary_lock": True,
        "num_trainers": 1,
        "trainer_id": 0,
        "trainers_endpoints": [],
        "nccl_comm_num": 1,
        "use_hierarchical_allreduce": False,
        "hierarchical_allreduce_inter_nranks": 0,
        "sync_batch_norm": False,
        "memory_optimize": None,
        "is_distribution": False,
        "async_mode": False,
        "fuse_all_reduce_ops": True,
        "mkldnn_enabled_op_types": [],
        "divide_updates": True,  # ours
        "compiler": "",  # ours
    }


def test_every_field_takes_its_default_and_says_what_it_is() -> None:
    strategy = BuildStrategy()
    for name, field in strategy.fields.items():
        setattr(strategy, name, getattr(strategy, name))
        assert field.help, name
    assert strategy == BuildStrategy()


def test_enums_are_nested_and_only_their_members_are_taken() -> None:
    strategy = BuildStrategy()
    strategy.gradient_scale_strategy = BuildStrategy.GradientScaleStrategy.One
    assert strategy.gradient_scale_strategy.name == "One"
    assert int(BuildStrategy.ReduceStrategy.Reduce) == 1
    with pytest.raises(ConfigError, match="use one of BuildStrategy.GradientScaleStrategy.CoeffNumDevice"):
        strategy.gradient_scale_strategy = 1
    strategy.reduce_strategy = BuildStrategy.ReduceStrategy.Reduce
    with pytest.raises(ConfigError, match="reduce_strategy is 1; use one of"):
        strategy.reduce_strategy = 1
    with pytest.raises(ConfigError, match="Customized"):
        strategy.gradient_scale_strategy = BuildStrategy.GradientScaleStrategy.Customized


def test_a_misspelt_switch_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'enable_inplace'"):
        BuildStrategy().enable_in_place = True


def test_copies_compare_equal_until_one_changes() -> None:
    strategy = BuildStrategy()
    strategy.memory_optimize = True
    strategy.debug_graphviz_path = "/tmp/step.dot"
    other = copy.deepcopy(strategy)
    assert other == strategy
    other.memory_optimize = None
    assert other != strategy
    assert repr(other) == "BuildStrategy(debug_graphviz_path='/tmp/step.dot')"
