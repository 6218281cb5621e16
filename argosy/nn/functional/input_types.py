"""What the functions of `nn.functional` accept (framework/input_types.py)."""

# SPDX-License-Identifier: Apache-2.0

INPUTS = {
    "x: float": """
        adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d
        adaptive_max_pool2d adaptive_max_pool3d avg_pool1d avg_pool2d avg_pool3d batch_norm dropout
        dropout2d dropout3d elu gelu group_norm hardshrink hardsigmoid hardswish hardtanh instance_norm
        layer_norm leaky_relu local_response_norm log_sigmoid log_softmax max_pool1d max_pool2d max_pool3d
        maxout mish normalize pixel_shuffle prelu relu relu6 selu sigmoid silu softmax softplus softshrink
        softsign swish tanh tanhshrink thresholded_relu unfold
    """,
    "x: any": "interpolate pad upsample",
    "x: float; weight: float; bias: float": """
        conv1d conv1d_transpose conv2d conv2d_transpose conv3d conv3d_transpose linear
    """,
    "x1: float; x2: float": "bilinear cosine_similarity",
    "x: integer; weight: float": "embedding",
    "x: integer": "one_hot",
    "label: any": "label_smooth",
    "input: float; label: any": """
        binary_cross_entropy cross_entropy dice_loss kl_div l1_loss log_loss mse_loss nll_loss
        smooth_l1_loss square_error_cost
    """,
    "input: float; other: float; label: any": "margin_ranking_loss",
    "logit: float; label: any": "binary_cross_entropy_with_logits sigmoid_focal_loss",
    "logits: float; label: any": "softmax_with_cross_entropy",
}
"""The inputs -> the functions that have them."""
