"""Convolutions with their weights."""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Callable
from typing import Any

from argosy.engine.errors import ConfigError
from argosy.framework.initializer import Normal
from argosy.nn import functional
from argosy.nn.functional.layout import per_axis
from argosy.nn.layer.layers import Layer


class _Conv(Layer):
    """Weights [out, in / groups, …], Gaussian with sqrt(2 / (kernel · in)) by default."""

    def __init__(
        self,
        function: Callable[..., Any],
        shape: tuple[int, int, list[int]],
        options: dict[str, Any],
        padding_mode: str,
        weight_attr: Any,
        bias_attr: Any,
    ) -> None:
        super().__init__()
        in_channels, out_channels, kernel = shape
        groups = _checked_groups(self, in_channels, out_channels, options["groups"])
        if padding_mode != "zeros":
            raise ConfigError(
                f"{type(self).__name__}: padding_mode={padding_mode!r} is not supported; use 'zeros', or an "
                "nn.Pad layer before it"
            )
        self._function, self._options = function, options
        self._shape = shape
        spread = Normal(0.0, math.sqrt(2.0 / (math.prod(kernel) * in_channels)))
        self.weight = self.create_parameter(
            [out_channels, in_channels // groups, *kernel], weight_attr, default_initializer=spread
        )
        self.bias = self.create_parameter([out_channels], bias_attr, is_bias=True)

    def forward(self, x: Any) -> Any:
        return self._function(x, self.weight, self.bias, **self._options)

    def extra_repr(self) -> str:
        return "{}, {}, kernel_size={}".format(*self._shape)


class Conv1D(_Conv):
    """Convolution over one axis."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        padding_mode: str = "zeros",
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str = "NCL",
    ) -> None:
        shape = in_channels, out_channels, per_axis("Conv1D: kernel_size", kernel_size, 1)
        options = _options(stride, padding, dilation, groups, data_format)
        super().__init__(functional.conv1d, shape, options, padding_mode, weight_attr, bias_attr)


class Conv2D(_Conv):
    """Convolution over two axes."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        padding_mode: str = "zeros",
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str = "NCHW",
    ) -> None:
        shape = in_channels, out_channels, per_axis("Conv2D: kernel_size", kernel_size, 2)
        options = _options(stride, padding, dilation, groups, data_format)
        super().__init__(functional.conv2d, shape, options, padding_mode, weight_attr, bias_attr)


class Conv3D(_Conv):
    """Convolution over three axes."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        padding_mode: str = "zeros",
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str = "NCDHW",
    ) -> None:
        shape = in_channels, out_channels, per_axis("Conv3D: kernel_size", kernel_size, 3)
        options = _options(stride, padding, dilation, groups, data_format)
        super().__init__(functional.conv3d, shape, options, padding_mode, weight_attr, bias_attr)


class _ConvTranspose(Layer):
    """Weights [in, out / groups, …], Xavier by default."""

    def __init__(
        self,
        function: Callable[..., Any],
        shape: tuple[int, int, list[int]],
        options: dict[str, Any],
        weight_attr: Any,
        bias_attr: Any,
    ) -> None:
        super().__init__()
        in_channels, out_channels, kernel = shape
        groups = _checked_groups(self, in_channels, out_channels, options["groups"])
        self._function, self._options, self._shape = function, options, shape
        self.weight = self.create_parameter([in_channels, out_channels // groups, *kernel], weight_attr)
        self.bias = self.create_parameter([out_channels], bias_attr, is_bias=True)

    def forward(self, x: Any, output_size: Any = None) -> Any:
        options = self._options if output_size is None else {**self._options, "output_padding": 0}
        return self._function(x, self.weight, self.bias, output_size=output_size, **options)

    def extra_repr(self) -> str:
        return "{}, {}, kernel_size={}".format(*self._shape)


class Conv1DTranspose(_ConvTranspose):
    """Transposed convolution over one axis."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str = "NCL",
    ) -> None:
        shape = in_channels, out_channels, per_axis("Conv1DTranspose: kernel_size", kernel_size, 1)
        options = _options(stride, padding, dilation, groups, data_format, output_padding=output_padding)
        super().__init__(functional.conv1d_transpose, shape, options, weight_attr, bias_attr)


class Conv2DTranspose(_ConvTranspose):
    """Transposed convolution over two axes."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str = "NCHW",
    ) -> None:
        shape = in_channels, out_channels, per_axis("Conv2DTranspose: kernel_size", kernel_size, 2)
        options = _options(stride, padding, dilation, groups, data_format, output_padding=output_padding)
        super().__init__(functional.conv2d_transpose, shape, options, weight_attr, bias_attr)


class Conv3DTranspose(_ConvTranspose):
    """Transposed convolution over three axes."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str = "NCDHW",
    ) -> None:
        shape = in_channels, out_channels, per_axis("Conv3DTranspose: kernel_size", kernel_size, 3)
        options = _options(stride, padding, dilation, groups, data_format, output_padding=output_padding)
        super().__init__(functional.conv3d_transpose, shape, options, weight_attr, bias_attr)


def _options(
    stride: Any, padding: Any, dilation: Any, groups: int, data_format: str, **more: Any
) -> dict[str, Any]:
    return {
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
        "data_format": data_format,
        **more,
    }


def _checked_groups(layer: Layer, in_channels: int, out_channels: int, groups: int) -> int:
    if groups < 1 or in_channels % groups or out_channels % groups:
        raise ConfigError(
            f"{type(layer).__name__}: {in_channels} channels and {out_channels} filters are not divisible into "
            f"{groups} groups; use a number that divides both"
        )
    return groups
