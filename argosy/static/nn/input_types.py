"""What the functions of `static.nn` accept (framework/input_types.py)."""

# SPDX-License-Identifier: Apache-2.0

INPUTS = {
    "input: float": "batch_norm conv2d conv2d_transpose conv3d group_norm instance_norm layer_norm",
    "input: integer": "embedding sparse_embedding",
    "x: float": "prelu",
}
"""The inputs -> the functions that have them; fc, which takes one Variable or several, checks its inputs itself."""
