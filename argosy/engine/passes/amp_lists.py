"""Which ops run in 16 bits under automatic mixed precision, by name.

A name in a list is an ATen op without its overload (`convolution`, `mm`), or Paddle's op (`conv2d`, `softmax`), which
means the ATen ops that Argosy records for it. The gradient of an op is in the list of the op.

    white    runs in 16 bits: products, where 16-bit units are faster and accumulate in float32
    gray     runs in the precision of its inputs; in float32 if they differ
    black    runs in float32: sums over many elements, exponentials, losses
    others   run in float32

In backward `sum` is gray, as in eager mode, where autocast does not apply to backward: it is the gradient of a
broadcast, of a bias for instance. ATen accumulates it in float32.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable
from dataclasses import dataclass

from argosy.engine.errors import ConfigError, nearest

_BY_PADDLE_NAME: dict[str, tuple[str, ...]] = {
    "conv2d": ("convolution", "convolution_backward"),
    "matmul": ("mm", "bmm", "mv", "addmm", "baddbmm"),
    "softmax": ("_softmax", "_softmax_backward_data"),
    "log_softmax": ("_log_softmax", "_log_softmax_backward_data"),
    "cross_entropy": (
        "_log_softmax", "_log_softmax_backward_data", "nll_loss_forward", "nll_loss_backward",
        "nll_loss2d_forward", "nll_loss2d_backward",
    ),
    "sigmoid_cross_entropy_with_logits": ("binary_cross_entropy_with_logits",),
    "batch_norm": (
        "native_batch_norm", "native_batch_norm_backward", "cudnn_batch_norm", "cudnn_batch_norm_backward",
    ),
    "layer_norm": ("native_layer_norm", "native_layer_norm_backward"),
    "group_norm": ("native_group_norm", "native_group_norm_backward"),
    "dropout": ("native_dropout", "native_dropout_backward"),
    "lookup_table": ("embedding", "embedding_dense_backward"),
    "pool2d": (
        "max_pool2d_with_indices", "max_pool2d_with_indices_backward", "avg_pool2d", "avg_pool2d_backward",
        "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward",
    ),
    "pool3d": ("max_pool3d_with_indices", "max_pool3d_with_indices_backward"),
    "relu": ("relu", "threshold_backward"),
    "relu6": ("hardtanh", "hardtanh_backward"),
    "leaky_relu": ("leaky_relu", "leaky_relu_backward"),
    "elu": ("elu", "elu_backward"),
    "gelu": ("gelu", "gelu_backward"),
    "swish": ("silu", "silu_backward"),
    "hard_swish": ("hardswish", "hardswish_backward"),
    "hard_sigmoid": ("hardsigmoid", "hardsigmoid_backward"),
    "tanh": ("tanh", "tanh_backward"),
    "sigmoid": ("sigmoid", "sigmoid_backward"),
    "elementwise_add": ("add",),
    "elementwise_sub": ("sub", "rsub"),
    "elementwise_mul": ("mul",),
    "elementwise_div": ("div",),
    "elementwise_max": ("maximum",),
    "elementwise_min": ("minimum",),
    "elementwise_pow": ("pow",),
    "scale": ("mul", "add"),
    "square": ("pow",),
    "reduce_sum": ("sum",),
    "reduce_mean": ("mean",),
    "cos_sim": ("linalg_vector_norm",),
    "concat": ("cat",),
    "reshape2": ("view", "_unsafe_view", "reshape"),
    "transpose2": ("permute", "transpose", "t"),
    "top_k": ("topk",),
}  # fmt: skip
_SAME_IN_PADDLE = {"mul": "matmul", "matmul_v2": "matmul", "cross_entropy2": "cross_entropy", "mean": "reduce_mean",
                   "softmax_with_cross_entropy": "cross_entropy", "sum": "reduce_sum", "depthwise_conv2d": "conv2d",
                   "conv2d_transpose": "conv2d", "conv3d": "conv2d", "lookup_table_v2": "lookup_table"}  # fmt: skip
"""Paddle's op -> one with the same ATen ops. Its `mul` is the product of matrices that `fc` uses."""

_WHITE = frozenset({
    "convolution", "convolution_backward", "mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "addmv",
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward",
    "_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_backward",
    "_scaled_dot_product_efficient_attention", "_scaled_dot_product_efficient_attention_backward",
})  # fmt: skip
_BLACK = frozenset({
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "logsumexp", "pow", "prod", "sum", "mean", "cumsum",
    "cumprod", "var", "std", "var_mean", "reciprocal", "rsqrt", "linalg_vector_norm", "norm", "dist", "cdist",
    "_softmax", "_softmax_backward_data", "_log_softmax", "_log_softmax_backward_data",
    "nll_loss_forward", "nll_loss_backward", "nll_loss2d_forward", "nll_loss2d_backward",
    "mse_loss", "mse_loss_backward", "smooth_l1_loss", "smooth_l1_loss_backward", "huber_loss",
    "huber_loss_backward", "binary_cross_entropy", "binary_cross_entropy_backward",
    "binary_cross_entropy_with_logits", "soft_margin_loss", "soft_margin_loss_backward",
    "multilabel_margin_loss_forward", "multilabel_margin_loss_backward", "multi_margin_loss",
    "multi_margin_loss_backward", "ctc_loss", "ctc_loss_backward", "recurrent", "recurrent_backward",
})  # fmt: skip
_GRAY = frozenset({
    "native_batch_norm", "native_batch_norm_backward", "native_layer_norm", "native_layer_norm_backward",
    "native_group_norm", "native_group_norm_backward", "native_dropout", "native_dropout_backward",
    "max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool2d_with_indices_backward",
    "max_pool3d_with_indices", "max_pool3d_with_indices_backward", "avg_pool2d", "avg_pool2d_backward",
    "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward", "relu", "threshold_backward", "hardtanh",
    "hardtanh_backward", "leaky_relu", "leaky_relu_backward", "elu", "elu_backward", "gelu", "gelu_backward", "silu",
    "silu_backward", "hardswish", "hardswish_backward", "hardsigmoid", "hardsigmoid_backward", "tanh",
    "tanh_backward", "sigmoid", "sigmoid_backward", "softplus", "softplus_backward", "mish", "mish_backward",
    "add", "sub", "rsub", "mul", "div", "neg", "abs", "sign", "maximum", "minimum", "clamp", "clamp_min", "clamp_max",
    "where", "masked_fill", "eq", "ne", "gt", "ge", "lt", "le", "sqrt", "lerp", "isnan", "isinf",
    "view", "_unsafe_view", "reshape", "permute", "transpose", "t", "expand", "squeeze", "unsqueeze", "slice", "select",
    "slice_backward", "select_backward", "split", "split_with_sizes", "unbind", "as_strided", "alias", "detach",
    "clone", "contiguous", "cat", "stack", "flip", "roll", "repeat", "constant_pad_nd", "index", "index_select",
    "gather", "embedding", "tril", "triu", "topk", "sort", "argmax", "argmin", "amax", "amin", "max", "min", "unfold",
    "full_like", "ones_like", "zeros_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty",
    "upsample_nearest2d", "upsample_nearest2d_backward", "upsample_bilinear2d", "upsample_bilinear2d_backward",
    "pixel_shuffle", "pixel_unshuffle", "sum_to_size", "_to_copy", "copy", "lift_fresh_copy",
})  # fmt: skip


_GRAY_IN_BACKWARD = frozenset({"sum"})


@dataclass(frozen=True)
class AmpLists:
    """The ops of each list; an op that is in none runs in float32."""

    white: frozenset[str] = _WHITE
    black: frozenset[str] = _BLACK
    gray: frozenset[str] = _GRAY
    gray_in_backward: frozenset[str] = _GRAY_IN_BACKWARD

    def with_custom(self, white: Iterable[str] = (), black: Iterable[str] = ()) -> "AmpLists":
        """The lists with these ops moved: `white` run in 16 bits, `black` in float32."""
        to_white, to_black = _ops("custom_white_list", white), _ops("custom_black_list", black)
        if both := to_white & to_black:
            raise ConfigError(
                f"{sorted(both)[0]!r} is in the custom white list and in the custom black list; put it into one"
            )
        return AmpLists(
            (self.white | to_white) - to_black,
            (self.black | to_black) - to_white,
            self.gray - to_white - to_black,
            self.gray_in_backward - to_white - to_black,
        )

    def kind(self, op: str, is_backward: bool = False) -> str:
        """white, gray or black. `op`: an ATen op without its overload; relu_ has the kind of relu."""
        name = op.removesuffix("_") if not op.startswith("__") else op
        if name in self.white:
            return "white"
        if is_backward and name in self.gray_in_backward:
            return "gray"
        return "gray" if name in self.gray and name not in self.black else "black"


def _ops(what: str, names: Iterable[str]) -> frozenset[str]:
    """The ATen ops of these names."""
    if isinstance(names, str):
        raise ConfigError(f"{what} is {names!r}; use a list of names of ops")
    known = _WHITE | _BLACK | _GRAY
    ops: set[str] = set()
    for name in names:
        paddle_name = _SAME_IN_PADDLE.get(name, name)
        if paddle_name in _BY_PADDLE_NAME:
            ops.update(_BY_PADDLE_NAME[paddle_name])
        elif name in known:
            ops.update(op for op in (name, f"{name}_backward") if op in known)
        else:
            near = nearest(name, [*_BY_PADDLE_NAME, *_SAME_IN_PADDLE, *known])
            raise ConfigError(
                f"{what}: no op is called {name!r}{near}; use Paddle's name of an op, or ATen's"
            )
    return frozenset(ops)
