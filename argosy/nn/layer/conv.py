"""Convolutions with their weights."""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Callable
from typing import Any

from argosy.engine.errors import ConfigError, UnsupportedError
from argosy.framework.initializer import Normal
from argosy.nn import functional
from argosy.nn.functional.layout import per_axis
from argosy.nn.layer.function_layer import LayerFamily


class _ConvBase(LayerFamily):
    """The part that does not depend on the direction: sizes, arguments and repr."""

    _function: Callable[..., Any]
    _options: dict[str, Any]
    _shape: tuple[int, int, list[int]]

    def _create(
        self, kernel_size: Any, spatial: int, channels: tuple[int, int], options: dict[str, Any]
    ) -> list[int]:
        """Check the sizes and store what `forward` and `repr` need; returns the sizes of the kernel."""
        kind, groups = type(self).__name__, options["groups"]
        kernel = per_axis(f"{kind}: kernel_size", kernel_size, spatial)
        if groups < 1 or any(count % groups for count in channels):
            raise ConfigError(
                f"{kind}: {channels[0]} channels and {channels[1]} filters are not divisible into {groups} groups; "
                "use a number that divides both"
            )
        self._options, self._shape = options, (*channels, kernel)
        return kernel

    def extra_repr(self) -> str:
        return "{}, {}, kernel_size={}".format(*self._shape)


class _Conv(_ConvBase):
    """Weights [out, in / groups, …], Gaussian with sqrt(2 / (kernel · in)) by default."""

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
        *,
        spatial: int = 2,
    ) -> None:
        super().__init__()
        options = {
            "stride": stride,
            "padding": padding,
            "dilation": dilation,
            "groups": groups,
            "data_format": data_format,
        }
        kernel = self._create(kernel_size, spatial, (in_channels, out_channels), options)
        if padding_mode != "zeros":
            raise UnsupportedError(
                f"{type(self).__name__}: padding_mode={padding_mode!r} is not supported; use 'zeros', or an "
                "nn.Pad layer before it"
            )
        self._function = (functional.conv1d, functional.conv2d, functional.conv3d)[spatial - 1]
        spread = Normal(0.0, math.sqrt(2.0 / (math.prod(kernel) * in_channels)))
        self.weight = self.create_parameter(
            [out_channels, in_channels // groups, *kernel], weight_attr, default_initializer=spread
        )
        self.bias = self.create_parameter([out_channels], bias_attr, is_bias=True)

    def forward(self, x: Any) -> Any:
        return self._function(x, self.weight, self.bias, **self._options)


class Conv1D(_Conv, spatial=1, data_format="NCL"):
    """Convolution over one axis."""


class Conv2D(_Conv, spatial=2):
    """Convolution over two axes."""


class Conv3D(_Conv, spatial=3, data_format="NCDHW"):
    """Convolution over three axes."""


class _ConvTranspose(_ConvBase):
    """Weights [in, out / groups, …], Xavier by default."""

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
        *,
        spatial: int = 2,
    ) -> None:
        super().__init__()
        options = {
            "stride": stride,
            "padding": padding,
            "output_padding": output_padding,
            "dilation": dilation,
            "groups": groups,
            "data_format": data_format,
        }
        kernel = self._create(kernel_size, spatial, (in_channels, out_channels), options)
        functions = (functional.conv1d_transpose, functional.conv2d_transpose, functional.conv3d_transpose)
        self._function = functions[spatial - 1]
        self.weight = self.create_parameter([in_channels, out_channels // groups, *kernel], weight_attr)
        self.bias = self.create_parameter([out_channels], bias_attr, is_bias=True)

    def forward(self, x: Any, output_size: Any = None) -> Any:
        options = self._options if output_size is None else {**self._options, "output_padding": 0}
        return self._function(x, self.weight, self.bias, output_size=output_size, **options)


class Conv1DTranspose(
    _ConvTranspose,
    spatial=1,
    data_format="NCL",
    parameters="in_channels out_channels kernel_size stride padding output_padding groups dilation "
    "weight_attr bias_attr data_format",
):
    """Transposed convolution over one axis."""


class Conv2DTranspose(_ConvTranspose, spatial=2):
    """Transposed convolution over two axes."""


class Conv3DTranspose(_ConvTranspose, spatial=3, data_format="NCDHW"):
    """Transposed convolution over three axes."""
