"""Pooling as layers."""

# SPDX-License-Identifier: Apache-2.0
from argosy.nn import functional
from argosy.nn.layer.function_layer import FunctionLayer


class MaxPool1D(FunctionLayer, function=functional.max_pool1d):
    """The greatest of each window of [N, C, L]."""


class MaxPool2D(FunctionLayer, function=functional.max_pool2d):
    """The greatest of each window of [N, C, H, W]."""


class MaxPool3D(FunctionLayer, function=functional.max_pool3d):
    """The greatest of each window of [N, C, D, H, W]."""


class AvgPool1D(FunctionLayer, function=functional.avg_pool1d):
    """The mean of each window of [N, C, L]; `exclusive` excludes the padding from the count."""


class AvgPool2D(FunctionLayer, function=functional.avg_pool2d):
    """The mean of each window of [N, C, H, W]; `exclusive` excludes the padding from the count."""


class AvgPool3D(FunctionLayer, function=functional.avg_pool3d):
    """The mean of each window of [N, C, D, H, W]; `exclusive` excludes the padding from the count."""


class AdaptiveAvgPool1D(FunctionLayer, function=functional.adaptive_avg_pool1d):
    """The means of output_size windows that cover the axis."""


class AdaptiveAvgPool2D(FunctionLayer, function=functional.adaptive_avg_pool2d):
    """The means of windows that cover the plane; None in output_size keeps a size."""


class AdaptiveAvgPool3D(FunctionLayer, function=functional.adaptive_avg_pool3d):
    """The means of windows that cover the block; None in output_size keeps a size."""


class AdaptiveMaxPool1D(FunctionLayer, function=functional.adaptive_max_pool1d):
    """The greatest of each of output_size windows that cover the axis."""


class AdaptiveMaxPool2D(FunctionLayer, function=functional.adaptive_max_pool2d):
    """The greatest of each window of the plane."""


class AdaptiveMaxPool3D(FunctionLayer, function=functional.adaptive_max_pool3d):
    """The greatest of each window of the block."""
