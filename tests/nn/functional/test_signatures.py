"""The arguments of nn.functional: names, order and defaults of Paddle 2.0's documentation."""

# SPDX-License-Identifier: Apache-2.0
import inspect

from argosy.nn import functional

TABLE = """
adaptive_max_pool2d(x, output_size, return_mask=False, name=None)
avg_pool1d(x, kernel_size, stride=None, padding=0, exclusive=True, ceil_mode=False, name=None)
avg_pool2d(x, kernel_size, stride=None, padding=0, ceil_mode=False, exclusive=True, divisor_override=None, \
data_format='NCHW', name=None)
batch_norm(x, running_mean, running_var, weight, bias, training=False, momentum=0.9, epsilon=1e-05, data_format='NCHW')
binary_cross_entropy(input, label, weight=None, reduction='mean', name=None)
binary_cross_entropy_with_logits(logit, label, weight=None, reduction='mean', pos_weight=None, name=None)
conv2d(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, data_format='NCHW', name=None)
conv2d_transpose(x, weight, bias=None, stride=1, padding=0, output_padding=0, dilation=1, groups=1, output_size=None, \
data_format='NCHW', name=None)
cosine_similarity(x1, x2, axis=1, eps=1e-08)
cross_entropy(input, label, weight=None, ignore_index=-100, reduction='mean', soft_label=False, axis=-1, name=None)
dropout(x, p=0.5, axis=None, training=True, mode='upscale_in_train', name=None)
dropout2d(x, p=0.5, training=True, data_format='NCHW', name=None)
elu(x, alpha=1.0, name=None)
embedding(x, weight, padding_idx=None, sparse=False, name=None)
gelu(x, approximate=False, name=None)
hardsigmoid(x, slope=0.1666667, offset=0.5, name=None)
hardtanh(x, min=-1.0, max=1.0, name=None)
instance_norm(x, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.9, \
eps=1e-05, data_format='NCHW', name=None)
interpolate(x, size=None, scale_factor=None, mode='nearest', align_corners=False, align_mode=0, data_format='NCHW', \
name=None)
kl_div(input, label, reduction='mean', name=None)
label_smooth(label, prior_dist=None, epsilon=0.1, name=None)
layer_norm(x, normalized_shape, weight=None, bias=None, epsilon=1e-05, name=None)
leaky_relu(x, negative_slope=0.01, name=None)
linear(x, weight, bias=None, name=None)
local_response_norm(x, size, alpha=0.0001, beta=0.75, k=1.0, data_format='NCHW', name=None)
log_softmax(x, axis=-1, dtype=None, name=None)
margin_ranking_loss(input, other, label, margin=0.0, reduction='mean', name=None)
max_pool2d(x, kernel_size, stride=None, padding=0, return_mask=False, ceil_mode=False, data_format='NCHW', name=None)
nll_loss(input, label, weight=None, ignore_index=-100, reduction='mean', name=None)
normalize(x, p=2, axis=1, epsilon=1e-12, name=None)
one_hot(x, num_classes, name=None)
pad(x, pad, mode='constant', value=0.0, data_format='NCHW', name=None)
selu(x, scale=1.0507009873554805, alpha=1.6732632423543772, name=None)
smooth_l1_loss(input, label, reduction='mean', delta=1.0, name=None)
softmax(x, axis=-1, dtype=None, name=None)
softmax_with_cross_entropy(logits, label, soft_label=False, ignore_index=-100, numeric_stable_mode=True, \
return_softmax=False, axis=-1)
softplus(x, beta=1, threshold=20, name=None)
thresholded_relu(x, threshold=1.0, name=None)
unfold(x, kernel_sizes, strides=1, paddings=0, dilations=1, name=None)
"""


def test_arguments_are_those_of_2_0() -> None:
    for line in TABLE.strip().splitlines():
        name, _, wanted = line.removesuffix(")").partition("(")
        parameters = inspect.signature(getattr(functional, name)).parameters.values()
        shown = [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters]
        expected = wanted.split(", ")
        assert shown[: len(expected)] == expected, name
