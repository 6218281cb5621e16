"""Every symbol that the scripts of Paddle 2.0's resnet examples use is there (facts, sections 10.1 and 10.2)."""

# SPDX-License-Identifier: Apache-2.0
from functools import reduce
from typing import Any

import numpy as np
import pytest

import argosy as paddle
from argosy.distributed import fleet
from argosy.engine.errors import ArgosyError, ConfigError

RESNET_STATIC = """
fluid.layers.conv2d fluid.layers.batch_norm fluid.layers.pool2d fluid.layers.elementwise_add fluid.layers.fc
fluid.param_attr.ParamAttr fluid.initializer.Uniform static.Variable.shape
"""
TRAIN_FLEET = """
enable_static vision.set_image_backend static.data nn.functional.cross_entropy metric.accuracy CUDAPlace CPUPlace
optimizer.Momentum optimizer.Adam regularizer.L2Decay batch dataset.flowers.train io.DataLoader.from_generator
static.Executor static.Executor.run static.default_startup_program static.default_main_program
fluid.default_startup_program fluid.default_main_program static.BuildStrategy static.ExecutionStrategy
distributed.fleet.DistributedStrategy distributed.fleet.init distributed.fleet.distributed_optimizer
distributed.fleet.minimize
"""
FLEET = """
init is_first_worker worker_index worker_num is_worker worker_endpoints server_num server_index server_endpoints
is_server util barrier_worker distributed_optimizer minimize distributed_model set_lr get_lr state_dict
set_state_dict DistributedStrategy UtilBase UserDefinedRoleMaker PaddleCloudRoleMaker Fleet Role metrics
node_num rank nranks world_size local_rank
"""
METRICS = "sum max min auc mae rmse mse acc"
UTIL = "all_reduce all_gather barrier get_file_shard print_on_rank"
DYGRAPH = """
nn.Layer nn.Conv2D nn.BatchNorm nn.Linear nn.Dropout nn.MaxPool2D nn.AvgPool2D nn.AdaptiveAvgPool2D
nn.initializer.Uniform ParamAttr add nn.functional.relu mean save load disable_static to_tensor io.DataLoader
static.Variable.numpy static.Variable.backward nn.Layer.clear_gradients nn.Layer.state_dict
nn.Layer.set_state_dict optimizer.Momentum.state_dict optimizer.Momentum.set_state_dict optimizer.Momentum.step
optimizer.Momentum.clear_grad optimizer.Momentum.minimize
"""
STRATEGY = """
build_strategy execution_strategy nccl_comm_num sync_nccl_allreduce use_hierarchical_allreduce
hierarchical_allreduce_inter_nranks fuse_all_reduce_ops fuse_grad_size_in_MB sync_batch_norm amp amp_configs dgc
dgc_configs localsgd localsgd_configs adaptive_localsgd adaptive_localsgd_configs gradient_merge
gradient_merge_configs lamb lamb_configs lars lars_configs recompute recompute_configs sharding sharding_configs
"""


def look_up(name: str) -> Any:
    return reduce(getattr, name.split("."), paddle)


@pytest.mark.parametrize(
    "name",
    [
        *RESNET_STATIC.split(),
        *TRAIN_FLEET.split(),
        *DYGRAPH.split(),
        *(f"distributed.fleet.{name}" for name in FLEET.split()),
        *(f"distributed.fleet.metrics.{name}" for name in METRICS.split()),
        *(f"distributed.fleet.util.{name}" for name in UTIL.split()),
        *(
            f"distributed.fleet.DistributedStrategy.{name}"
            for name in ("save_to_prototxt", "load_from_prototxt")
        ),
    ],
)
def test_the_symbol_is_there(name: str) -> None:
    assert look_up(name) is not None


@pytest.mark.parametrize("name", STRATEGY.split())
def test_the_strategy_has_the_property(name: str) -> None:
    getattr(fleet.DistributedStrategy(), name)


def a_layer() -> Any:
    return paddle.nn.Linear(2, 3)


def a_loss() -> Any:
    return paddle.mean(paddle.static.data("x", [None, 2], "float32"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (paddle.disable_static, "static programs only"),
        (lambda: fleet.distributed_model(a_layer()), "fleet.distributed_optimizer"),
        (lambda: a_layer().clear_gradients(), "leave the call out"),
        (lambda: paddle.optimizer.SGD(0.1).step(), r"call minimize\(loss\)"),
        (lambda: paddle.optimizer.SGD(0.1).clear_grad(), "leave the call out"),
        (lambda: a_loss().backward(), r"optimizer.minimize\(loss\)"),
        (lambda: a_loss().numpy(), "fetch"),
    ],
)
def test_what_is_of_eager_mode_says_what_to_use_instead(call: Any, message: str) -> None:
    with pytest.raises(ArgosyError, match=message):
        call()


def test_the_places_can_be_printed() -> None:
    assert str(paddle.CPUPlace()) == "CPUPlace"


def test_the_defaults_of_momentum_are_those_of_the_scripts() -> None:
    decay = paddle.regularizer.L2Decay(1e-4)
    opt = paddle.optimizer.Momentum(learning_rate=0.1, momentum=0.9, weight_decay=decay, parameters=None)
    assert opt.get_lr() == pytest.approx(0.1)


def test_fluids_strategies_are_those_of_static() -> None:
    assert paddle.fluid.BuildStrategy is paddle.static.BuildStrategy
    assert paddle.fluid.CompiledProgram is paddle.static.CompiledProgram


def test_roles_of_1_x_are_roles_of_fleet() -> None:
    from argosy.fluid.incubate.fleet.base import role_maker
    from argosy.fluid.incubate.fleet.collective import fleet as one

    role = role_maker.UserDefinedCollectiveRoleMaker(1, ["127.0.0.1:1", "127.0.0.1:2"])
    assert (role.worker_index(), role.worker_num(), role._is_collective) == (1, 2, True)
    server = role_maker.UserDefinedRoleMaker(0, role_maker.Role.SERVER, 2, ["127.0.0.1:1"])
    assert (server.is_server(), server.worker_num()) == (True, 2)
    assert one._fleet is fleet.fleet


def test_an_array_of_one_element_prints_as_a_number() -> None:
    exe = paddle.static.Executor(paddle.CPUPlace())
    (loss,) = exe.run(feed={"x": np.ones((2, 2), "float32")}, fetch_list=[a_loss().name])
    assert "%.5f" % loss == "1.00000"  # noqa: UP031  (as the scripts do)


def test_a_wrong_type_of_is_collective_is_refused() -> None:
    with pytest.raises(ConfigError, match="is_collective"):
        fleet.init(is_collective="yes")
