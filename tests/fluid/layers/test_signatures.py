"""The arguments of fluid.layers, fluid.nets and fluid: names, order and defaults of Paddle 1.8's documentation.

A function may have more arguments after those of 1.8, such as `name`.
"""

# SPDX-License-Identifier: Apache-2.0
import inspect

import pytest

from argosy import fluid

LAYERS = """
accuracy(input, label, k=1, correct=None, total=None)
adaptive_pool2d(input, pool_size, pool_type='max', require_index=False, name=None)
argmax(x, axis=0)
argmin(x, axis=0)
assign(input, output=None)
auc(input, label, curve='ROC', num_thresholds=4095, topk=1, slide_steps=1)
cast(x, dtype)
clip_by_norm(x, max_norm, name=None)
concat(input, axis=0, name=None)
conv2d(input, num_filters, filter_size, stride=1, padding=0, dilation=1, groups=None, param_attr=None, bias_attr=None, \
use_cudnn=True, act=None, name=None, data_format='NCHW')
conv2d_transpose(input, num_filters, output_size=None, filter_size=None, padding=0, stride=1, dilation=1, groups=None, \
param_attr=None, bias_attr=None, use_cudnn=True, act=None, name=None, data_format='NCHW')
create_global_var(shape, value, dtype, persistable=False, force_cpu=False, name=None)
create_parameter(shape, dtype, name=None, attr=None, is_bias=False, default_initializer=None)
cross_entropy(input, label, soft_label=False, ignore_index=-100)
data(name, shape, append_batch_size=True, dtype='float32', lod_level=0, type=None, stop_gradient=True)
elementwise_add(x, y, axis=-1, act=None, name=None)
elu(x, alpha=1.0, name=None)
embedding(input, size, is_sparse=False, is_distributed=False, padding_idx=None, param_attr=None, dtype='float32')
expand(x, expand_times, name=None)
fc(input, size, num_flatten_dims=1, param_attr=None, bias_attr=None, act=None, name=None)
fill_constant(shape, dtype, value, force_cpu=False, out=None)
fill_constant_batch_size_like(input, shape, dtype, value, input_dim_idx=0, output_dim_idx=0, force_cpu=False)
flatten(x, axis=1, name=None)
gather(input, index, overwrite=True)
gaussian_random(shape, mean=0.0, std=1.0, seed=0, dtype='float32')
group_norm(input, groups, epsilon=1e-05, param_attr=None, bias_attr=None, act=None, data_layout='NCHW', name=None)
hard_sigmoid(x, slope=0.2, offset=0.5, name=None)
increment(x, value=1.0, in_place=True)
instance_norm(input, epsilon=1e-05, param_attr=None, bias_attr=None, name=None)
l2_normalize(x, axis, epsilon=1e-12, name=None)
label_smooth(label, prior_dist=None, epsilon=0.1, dtype='float32', name=None)
layer_norm(input, scale=True, shift=True, begin_norm_axis=1, epsilon=1e-05, param_attr=None, bias_attr=None, act=None, \
name=None)
leaky_relu(x, alpha=0.02, name=None)
less_than(x, y, force_cpu=None, cond=None)
log_loss(input, label, epsilon=0.0001, name=None)
logical_and(x, y, out=None, name=None)
logical_not(x, out=None, name=None)
matmul(x, y, transpose_x=False, transpose_y=False, alpha=1.0, name=None)
mean(x, name=None)
mul(x, y, x_num_col_dims=1, y_num_col_dims=1, name=None)
noam_decay(d_model, warmup_steps, learning_rate=1.0)
one_hot(input, depth, allow_out_of_range=False)
ones(shape, dtype, force_cpu=False)
ones_like(x, out=None)
pad(x, paddings, pad_value=0.0, name=None)
polynomial_decay(learning_rate, decay_steps, end_learning_rate=0.0001, power=1.0, cycle=False)
pool2d(input, pool_size=-1, pool_type='max', pool_stride=1, pool_padding=0, global_pooling=False, use_cudnn=True, \
ceil_mode=False, name=None, exclusive=True, data_format='NCHW')
pow(x, factor=1.0, name=None)
prelu(x, mode, param_attr=None, name=None)
range(start, end, step, dtype)
reduce_sum(input, dim=None, keep_dim=False, name=None)
relu6(x, threshold=6.0, name=None)
reshape(x, shape, actual_shape=None, act=None, inplace=False, name=None)
resize_nearest(input, out_shape=None, scale=None, name=None, actual_shape=None, align_corners=True, data_format='NCHW')
scale(x, scale=1.0, bias=0.0, bias_after_scale=True, act=None, name=None)
scatter(input, index, updates, name=None, overwrite=True)
sigmoid_cross_entropy_with_logits(x, label, ignore_index=-100, name=None, normalize=False)
slice(input, axes, starts, ends)
smooth_l1(x, y, inside_weight=None, outside_weight=None, sigma=None)
softmax(input, use_cudnn=False, name=None, axis=-1)
softmax_with_cross_entropy(logits, label, soft_label=False, ignore_index=-100, numeric_stable_mode=True, \
return_softmax=False, axis=-1)
split(input, num_or_sections, dim=-1, name=None)
square_error_cost(input, label)
squeeze(input, axes, name=None)
stack(x, axis=0)
sums(input, out=None)
swish(x, beta=1.0, name=None)
topk(input, k, name=None)
transpose(x, perm, name=None)
uniform_random(shape, dtype='float32', min=-1.0, max=1.0, seed=0)
unsqueeze(input, axes, name=None)
zeros_like(x, out=None)
"""
FLUID = """
data(name, shape, dtype='float32', lod_level=0)
embedding(input, size, is_sparse=False, is_distributed=False, padding_idx=None, param_attr=None, dtype='float32')
one_hot(input, depth, allow_out_of_range=False)
gradients(targets, inputs, target_gradients=None, no_grad_set=None)
DataFeeder(feed_list, place, program=None)
save(program, model_path)
load(program, model_path, executor=None, var_list=None)
program_guard(main_program, startup_program=None)
"""
NETS = """
simple_img_conv_pool(input, num_filters, filter_size, pool_size, pool_stride, pool_padding=0, pool_type='max', \
global_pooling=False, conv_stride=1, conv_padding=0, conv_dilation=1, conv_groups=1, param_attr=None, bias_attr=None, \
act=None, use_cudnn=True)
img_conv_group(input, conv_num_filter, pool_size, conv_padding=1, conv_filter_size=3, conv_act=None, param_attr=None, \
conv_with_batchnorm=False, conv_batchnorm_drop_rate=0.0, pool_stride=1, pool_type='max', use_cudnn=True)
"""


@pytest.mark.parametrize(
    ("package", "table"),
    [(fluid.layers, LAYERS), (fluid, FLUID), (fluid.nets, NETS)],
    ids=["layers", "fluid", "nets"],
)
def test_arguments_are_those_of_1_8(package: object, table: str) -> None:
    for line in table.strip().splitlines():
        name, _, wanted = line.removesuffix(")").partition("(")
        parameters = inspect.signature(getattr(package, name)).parameters.values()
        shown = [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters]
        expected = wanted.split(", ")
        assert len(shown) >= len(expected), name
        for own, theirs in zip(shown, expected, strict=False):
            # An argument that 1.8 requires may have a default here.
            assert own == theirs or own.split("=")[0] == theirs, (name, own, theirs)
