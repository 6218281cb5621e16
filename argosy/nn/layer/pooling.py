"""Pooling as layers."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from argosy.nn import functional
from argosy.nn.layer.function_layer import FunctionLayer


class MaxPool1D(FunctionLayer):
    """The greatest of each window of [N, C, L]."""

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        return_mask: bool = False,
        ceil_mode: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(
            functional.max_pool1d,
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            return_mask=return_mask,
            ceil_mode=ceil_mode,
            name=name,
        )


class MaxPool2D(FunctionLayer):
    """The greatest of each window of [N, C, H, W]."""

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        return_mask: bool = False,
        ceil_mode: bool = False,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__(
            functional.max_pool2d,
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            return_mask=return_mask,
            ceil_mode=ceil_mode,
            data_format=data_format,
            name=name,
        )


class MaxPool3D(FunctionLayer):
    """The greatest of each window of [N, C, D, H, W]."""

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        return_mask: bool = False,
        ceil_mode: bool = False,
        data_format: str = "NCDHW",
        name: str | None = None,
    ) -> None:
        super().__init__(
            functional.max_pool3d,
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            return_mask=return_mask,
            ceil_mode=ceil_mode,
            data_format=data_format,
            name=name,
        )


class AvgPool1D(FunctionLayer):
    """The mean of each window of [N, C, L]; `exclusive` excludes the padding from the count."""

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        exclusive: bool = True,
        ceil_mode: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(
            functional.avg_pool1d,
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            exclusive=exclusive,
            ceil_mode=ceil_mode,
            name=name,
        )


class AvgPool2D(FunctionLayer):
    """The mean of each window of [N, C, H, W]; `exclusive` excludes the padding from the count."""

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        exclusive: bool = True,
        divisor_override: int | None = None,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__(
            functional.avg_pool2d,
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            ceil_mode=ceil_mode,
            exclusive=exclusive,
            divisor_override=divisor_override,
            data_format=data_format,
            name=name,
        )


class AvgPool3D(FunctionLayer):
    """The mean of each window of [N, C, D, H, W]; `exclusive` excludes the padding from the count."""

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        exclusive: bool = True,
        divisor_override: int | None = None,
        data_format: str = "NCDHW",
        name: str | None = None,
    ) -> None:
        super().__init__(
            functional.avg_pool3d,
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            ceil_mode=ceil_mode,
            exclusive=exclusive,
            divisor_override=divisor_override,
            data_format=data_format,
            name=name,
        )


class AdaptiveAvgPool1D(FunctionLayer):
    """The means of output_size windows that cover the axis."""

    def __init__(self, output_size: Any, name: str | None = None) -> None:
        super().__init__(functional.adaptive_avg_pool1d, output_size=output_size, name=name)


class AdaptiveAvgPool2D(FunctionLayer):
    """The means of windows that cover the plane; None in output_size keeps a size."""

    def __init__(self, output_size: Any, data_format: str = "NCHW", name: str | None = None) -> None:
        super().__init__(
            functional.adaptive_avg_pool2d, output_size=output_size, data_format=data_format, name=name
        )


class AdaptiveAvgPool3D(FunctionLayer):
    """The means of windows that cover the block; None in output_size keeps a size."""

    def __init__(self, output_size: Any, data_format: str = "NCDHW", name: str | None = None) -> None:
        super().__init__(
            functional.adaptive_avg_pool3d, output_size=output_size, data_format=data_format, name=name
        )


class AdaptiveMaxPool1D(FunctionLayer):
    """The greatest of each of output_size windows that cover the axis."""

    def __init__(self, output_size: Any, return_mask: bool = False, name: str | None = None) -> None:
        super().__init__(
            functional.adaptive_max_pool1d, output_size=output_size, return_mask=return_mask, name=name
        )


class AdaptiveMaxPool2D(FunctionLayer):
    """The greatest of each window of the plane."""

    def __init__(self, output_size: Any, return_mask: bool = False, name: str | None = None) -> None:
        super().__init__(
            functional.adaptive_max_pool2d, output_size=output_size, return_mask=return_mask, name=name
        )


class AdaptiveMaxPool3D(FunctionLayer):
    """The greatest of each window of the block."""

    def __init__(self, output_size: Any, return_mask: bool = False, name: str | None = None) -> None:
        super().__init__(
            functional.adaptive_max_pool3d, output_size=output_size, return_mask=return_mask, name=name
        )
