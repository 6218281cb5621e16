"""Feeds, parameters, constants, random numbers, counters."""

# SPDX-License-Identifier: Apache-2.0
import inspect
from typing import Any

import numpy as np
import pytest
import torch

from argosy.engine.errors import ConfigError, UnknownNameError
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.runtime.executor import Executor
from argosy.fluid import layers
from argosy.framework.initializer import Constant
from argosy.framework.layer import ParamAttr
from argosy.optimizer.lr import LRScheduler


def run(*fetches: Any, **feed: Any) -> list[Any]:
    exe = Executor()
    exe.run(default_startup_program())
    return exe.run(feed=feed, fetch_list=list(fetches))


def test_data_puts_the_batch_in_front_unless_a_size_is_open() -> None:
    assert layers.data("a", [3, 4]).shape == (-1, 3, 4)
    assert layers.data("b", [3, 4], append_batch_size=False).shape == (3, 4)
    assert layers.data("c", [None, 4]).shape == (-1, 4)
    assert layers.data("d", [3, -1]).shape == (3, -1)
    label = layers.data("label", [1], dtype="int64")
    assert (label.shape, label.dtype, label.stop_gradient) == ((-1, 1), torch.int64, True)
    assert not layers.data("e", [1], stop_gradient=False).stop_gradient


def test_parameters_have_the_name_that_is_given() -> None:
    named = layers.create_parameter([2, 3], "float32", name="w", default_initializer=Constant(2.0))
    by_attr = layers.create_parameter([2], "float32", name="other", attr=ParamAttr(name="first"))
    bias = layers.create_parameter([2], "float32", is_bias=True)
    assert [v.name for v in (named, by_attr, bias)] == ["w", "first", "create_parameter_0.b_0"]
    assert run(named, bias)[0].tolist() == [[2] * 3] * 2
    assert run(bias)[0].tolist() == [0, 0]
    with pytest.raises(ConfigError, match="attr=False means no parameter"):
        layers.create_parameter([2], "float32", attr=False)


def test_global_variables_live_from_run_to_run() -> None:
    count = layers.create_global_var([1], 5, "int64", persistable=True, name="count")
    assert layers.increment(count) is count
    exe = Executor()
    exe.run(default_startup_program())
    assert [exe.run(fetch_list=[count])[0].item() for _ in range(3)] == [6, 7, 8]


def test_increment_may_leave_its_input_alone() -> None:
    start = layers.fill_constant([1], "float32", 1.5)
    more = layers.increment(start, 2.0, in_place=False)
    assert [v.item() for v in run(start, more)] == [1.5, 3.5]


def test_constants() -> None:
    fetched = run(
        layers.fill_constant([2, 1], "float32", 2.5),
        layers.zeros([2], "int64"),
        layers.ones([2], "float64"),
        layers.range(1, 7, 2, "int32"),
        layers.linspace(0.0, 1.0, 3),
    )
    assert [v.tolist() for v in fetched] == [[[2.5], [2.5]], [0, 0], [1, 1], [1, 3, 5], [0, 0.5, 1]]
    assert [str(v.dtype) for v in fetched] == ["float32", "int64", "float64", "int32", "float32"]
    assert layers.fill_constant([1], "float32", 0).name.startswith("fill_constant_")


def test_constants_may_follow_the_batch() -> None:
    x = layers.data("x", [3])
    out = layers.fill_constant_batch_size_like(x, [-1, 2], "float32", 7.0)
    other = layers.fill_constant_batch_size_like(x, [2, -1], "int64", 1, output_dim_idx=1)
    for batch in (2, 4):
        fetched = run(out, other, x=np.zeros((batch, 3), dtype="float32"))
        assert [v.shape for v in fetched] == [(batch, 2), (2, batch)]


def test_zeros_and_ones_like_a_variable() -> None:
    x = layers.data("x", [1, 2], append_batch_size=False, dtype="int64")
    target = layers.create_global_var([1, 2], 0, "int64")
    layers.ones_like(x, out=target)
    fetched = run(layers.zeros_like(x), layers.ones_like(x), target, x=np.array([[3, 4]]))
    assert [v.tolist() for v in fetched] == [[[0, 0]], [[1, 1]], [[1, 1]]]
    assert {v.dtype for v in fetched} == {np.dtype("int64")}


def test_values_may_be_written_to_a_variable() -> None:
    target = layers.create_global_var([2], 0.0, "float32", name="target")
    layers.fill_constant([2], "float32", 3.0, out=target)
    assert run(target)[0].tolist() == [3, 3]
    layers.assign(np.array([1.0, 2.0], dtype="float32"), target)
    assert run(target)[0].tolist() == [1, 2]
    layers.sums([target, target], out=target)
    assert run(target)[0].tolist() == [2, 4]


def test_sums_and_casts_and_scales() -> None:
    x = layers.data("x", [2])
    fed = np.array([[1, 2]], dtype="float32")
    fetched = run(
        layers.sums([x, x, x]),
        layers.sum([x, x]),
        layers.cast(x, "int64"),
        layers.scale(x, 2.0, 1.0),
        layers.scale(x, 2.0, 1.0, bias_after_scale=False, act="square"),
        layers.clip(x, 1.5, 1.8),
        x=fed,
    )
    assert [v[0].tolist() for v in fetched[:3]] == [[3, 6], [2, 4], [1, 2]]
    assert fetched[2].dtype == np.int64
    assert [v[0].tolist() for v in fetched[3:5]] == [[3, 5], [16, 36]]
    np.testing.assert_allclose(fetched[5], [[1.5, 1.8]])


def test_random_numbers_have_their_range_and_moments() -> None:
    flat, bell = run(
        layers.uniform_random([200, 100], min=-3.0, max=1.0), layers.gaussian_random([200, 100], 2.0, 3.0)
    )
    assert -3 <= flat.min() < -2.99
    assert 0.99 < flat.max() <= 1
    assert (flat.mean(), bell.mean(), bell.std()) == pytest.approx((-1, 2, 3), abs=0.1)
    assert flat.dtype == bell.dtype == np.float32


def test_a_program_has_a_seed() -> None:
    drawn = layers.uniform_random([3])
    default_main_program().random_seed = 7
    first, second = (Executor().run(fetch_list=[drawn])[0].tolist() for _ in range(2))
    assert first == second


def test_schedules_and_metrics_are_in_layers_too() -> None:
    assert isinstance(layers.exponential_decay(0.1, 10, 0.5), LRScheduler)
    assert {"accuracy", "auc", "piecewise_decay", "linear_lr_warmup"} <= set(layers.__all__)


SIGNATURES = """
accuracy input label k correct total
adaptive_pool2d input pool_size pool_type require_index name
argmax x axis
assign input output
auc input label curve num_thresholds topk slide_steps
batch_norm input act is_test momentum epsilon param_attr bias_attr data_layout in_place name moving_mean_name
cast x dtype
clip x min max name
clip_by_norm x max_norm name
concat input axis name
conv2d input num_filters filter_size stride padding dilation groups param_attr bias_attr use_cudnn act name data_format
conv2d_transpose input num_filters output_size filter_size padding stride dilation groups param_attr bias_attr use_cudnn
create_global_var shape value dtype persistable force_cpu name
create_parameter shape dtype name attr is_bias default_initializer
cross_entropy input label soft_label ignore_index
data name shape append_batch_size dtype lod_level type stop_gradient
dropout x dropout_prob is_test seed name dropout_implementation
elementwise_add x y axis act name
embedding input size is_sparse is_distributed padding_idx param_attr dtype
expand x expand_times name
fc input size num_flatten_dims param_attr bias_attr act name
fill_constant shape dtype value force_cpu out
flatten x axis name
gather input index overwrite
gaussian_random shape mean std seed dtype
group_norm input groups epsilon param_attr bias_attr act data_layout name
image_resize input out_shape scale name resample actual_shape align_corners align_mode data_format
increment x value in_place
instance_norm input epsilon param_attr bias_attr name
l2_normalize x axis epsilon name
label_smooth label prior_dist epsilon dtype name
layer_norm input scale shift begin_norm_axis epsilon param_attr bias_attr act name
less_than x y force_cpu cond
linspace start stop num dtype
log_loss input label epsilon name
matmul x y transpose_x transpose_y alpha name
mean x name
mul x y x_num_col_dims y_num_col_dims name
one_hot input depth allow_out_of_range
pad x paddings pad_value name
pool2d input pool_size pool_type pool_stride pool_padding global_pooling use_cudnn ceil_mode name exclusive data_format
prelu x mode param_attr name
range start end step dtype
reduce_sum input dim keep_dim name
relu x name
reshape x shape actual_shape act inplace name
resize_bilinear input out_shape scale name actual_shape align_corners align_mode data_format
resize_nearest input out_shape scale name actual_shape align_corners data_format
scale x scale bias bias_after_scale act name
scatter input index updates name overwrite
shape input
sigmoid_cross_entropy_with_logits x label ignore_index name normalize
slice input axes starts ends
smooth_l1 x y inside_weight outside_weight sigma
softmax input use_cudnn name axis
softmax_with_cross_entropy logits label soft_label ignore_index numeric_stable_mode return_softmax axis
split input num_or_sections dim name
square_error_cost input label
squeeze input axes name
stack x axis
sums input out
topk input k name
transpose x perm name
uniform_random shape dtype min max seed
unsqueeze input axes name
where condition
zeros shape dtype force_cpu
"""


@pytest.mark.parametrize("line", SIGNATURES.split("\n")[1:-1])
def test_the_arguments_are_those_of_1_x(line: str) -> None:
    name, *arguments = line.split()
    assert list(inspect.signature(getattr(layers, name)).parameters)[: len(arguments)] == arguments


def test_every_name_that_is_listed_is_there_and_says_what_it_does() -> None:
    for name in vars(layers)["__all__"]:
        assert getattr(layers, name).__doc__, name


def test_an_unknown_layer_is_named_with_its_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"argosy.fluid.layers.sofmax is not in Argosy.*softmax"):
        _ = layers.sofmax
