"""What the functions of `fluid.layers` accept (framework/input_types.py); those of other packages check it there."""

# SPDX-License-Identifier: Apache-2.0

INPUTS = {
    "x: float": """
        clip_by_norm dropout hard_sigmoid hard_swish l2_normalize leaky_relu mean pow relu6 swish
    """,
    "input: float": "adaptive_pool2d image_resize pool2d resize_bilinear resize_nearest softmax",
    "x: number; y: number": """
        elementwise_add elementwise_div elementwise_floordiv elementwise_max elementwise_min
        elementwise_mod elementwise_mul elementwise_pow elementwise_sub
    """,
    "x: any; y: any": "equal greater_equal greater_than less_equal less_than not_equal",
    "x: float; y: float": "matmul mul smooth_l1",
    "x: number": "argmax argmin increment",
    "x: any": "expand flatten ones_like pad reshape zeros_like",
    "input: number": "reduce_max reduce_mean reduce_min reduce_prod reduce_sum topk",
    "input: any": "fill_constant_batch_size_like split squeeze unsqueeze",
    "input: integer": "embedding one_hot",
    "input: any; index: integer": "gather",
    "input: any; index: integer; updates: any": "scatter",
    "input: any[]": "concat sums",
    "condition: bool": "where",
    "input: float; label: any": "cross_entropy",
    "logits: float; label: any": "softmax_with_cross_entropy",
    "x: float; label: float": "sigmoid_cross_entropy_with_logits",
    "label: float": "label_smooth",
}
"""The inputs -> the functions that have them."""
