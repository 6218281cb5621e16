"""Normalisation with its parameters and statistics."""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Sequence
from typing import Any

import torch

from argosy.framework.initializer import Constant, Normal
from argosy.framework.layer import LayerBuilder, ParamAttr, apply, leave_out_of_averages
from argosy.nn import functional
from argosy.nn.layer.function_layer import FunctionLayer, LayerFamily
from argosy.nn.layer.layers import Layer
from argosy.nn.spectral import spectral_normalized


class _BatchNorm(LayerFamily):
    """Parameters .w_0, .b_0; statistics .w_1 (mean) and .w_2 (variance) are the buffers _mean and _variance.

    (In Paddle the statistics are parameters that are not trained; here `parameters()` leaves them out.)
    """

    def __init__(
        self,
        num_features: int,
        momentum: float = 0.9,
        epsilon: float = 1e-05,
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str = "NCHW",
        use_global_stats: bool | None = None,
        name: str | None = None,
        *,
        statistics: tuple[str | None, str | None] = (None, None),
        dtype: Any = None,
    ) -> None:
        super().__init__(dtype=dtype)
        self.weight = self.create_parameter([num_features], weight_attr, default_initializer=Constant(1.0))
        self.bias = self.create_parameter([num_features], bias_attr, is_bias=True)
        self.register_buffer("_mean", self.create_statistic(statistics[0], [num_features], 0.0))
        self.register_buffer("_variance", self.create_statistic(statistics[1], [num_features], 1.0))
        self._momentum, self._epsilon = momentum, epsilon
        self._data_format, self._use_global_stats, self._name = data_format, use_global_stats, name

    def _of_batch(self) -> bool:
        """True: normalize by the statistics of the batch."""
        return self.training

    def forward(self, input: Any) -> Any:
        return functional.batch_norm(
            input,
            self._mean,
            self._variance,
            self.weight,
            self.bias,
            self._of_batch(),
            self._momentum,
            self._epsilon,
            self._data_format,
            self._use_global_stats,
            self._name,
        )

    def extra_repr(self) -> str:
        return f"num_features={self._mean.shape[0]}, momentum={self._momentum}, epsilon={self._epsilon}"


class BatchNorm(_BatchNorm):
    """1.x's BatchNorm: any number of axes, and an activation by name."""

    def __init__(
        self,
        num_channels: int,
        act: str | None = None,
        is_test: bool = False,
        momentum: float = 0.9,
        epsilon: float = 1e-05,
        param_attr: Any = None,
        bias_attr: Any = None,
        dtype: Any = "float32",
        data_layout: str = "NCHW",
        in_place: bool = False,
        moving_mean_name: str | None = None,
        moving_variance_name: str | None = None,
        do_model_average_for_mean_and_var: bool = True,
        use_global_stats: bool = False,
        trainable_statistics: bool = False,
    ) -> None:
        super().__init__(
            num_channels,
            momentum,
            epsilon,
            param_attr,
            bias_attr,
            data_layout,
            use_global_stats or is_test or None,
            statistics=(moving_mean_name, moving_variance_name),
            dtype=dtype,
        )
        self._act, self._always_batch = act, trainable_statistics
        if not do_model_average_for_mean_and_var:
            leave_out_of_averages(self._mean)
            leave_out_of_averages(self._variance)

    def _of_batch(self) -> bool:
        return self.training or self._always_batch

    def forward(self, input: Any) -> Any:
        out = super().forward(input)
        return LayerBuilder("batch_norm").activate(out, self._act) if self._act else out


class BatchNorm1D(_BatchNorm, data_format="NCL"):
    """Batch normalisation of [N, C] or [N, C, L]."""


class BatchNorm2D(_BatchNorm, data_format="NCHW"):
    """Batch normalisation of [N, C, H, W]."""


class BatchNorm3D(_BatchNorm, data_format="NCDHW"):
    """Batch normalisation of [N, C, D, H, W]."""


class LayerNorm(Layer):
    """Normalise over the last dimensions, whose sizes are normalized_shape."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        epsilon: float = 1e-05,
        weight_attr: Any = None,
        bias_attr: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        shape = [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)
        self.weight = self.create_parameter(shape, weight_attr, default_initializer=Constant(1.0))
        self.bias = self.create_parameter(shape, bias_attr, is_bias=True)
        self._normalized_shape, self._epsilon, self._name = shape, epsilon, name

    def forward(self, input: Any) -> Any:
        return functional.layer_norm(
            input, self._normalized_shape, self.weight, self.bias, self._epsilon, name=self._name
        )

    def extra_repr(self) -> str:
        return f"normalized_shape={self._normalized_shape}, epsilon={self._epsilon}"


class GroupNorm(Layer):
    """Normalise each sample over each of num_groups groups of channels."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        epsilon: float = 1e-05,
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.weight = self.create_parameter([num_channels], weight_attr, default_initializer=Constant(1.0))
        self.bias = self.create_parameter([num_channels], bias_attr, is_bias=True)
        self._num_groups, self._epsilon = num_groups, epsilon
        self._data_format, self._name = data_format, name

    def forward(self, input: Any) -> Any:
        return functional.group_norm(
            input, self._num_groups, self._epsilon, self.weight, self.bias, self._data_format, name=self._name
        )


class _InstanceNorm(LayerFamily):
    def __init__(
        self,
        num_features: int,
        epsilon: float = 1e-05,
        momentum: float = 0.9,
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.scale = self.create_parameter([num_features], weight_attr, default_initializer=Constant(1.0))
        self.bias = self.create_parameter([num_features], bias_attr, is_bias=True)
        self._epsilon, self._data_format, self._name = epsilon, data_format, name

    def forward(self, input: Any) -> Any:
        return functional.instance_norm(
            input,
            weight=self.scale,
            bias=self.bias,
            eps=self._epsilon,
            data_format=self._data_format,
            name=self._name,
        )


class InstanceNorm1D(_InstanceNorm, data_format="NCL"):
    """Normalise each channel of each sample of [N, C, L]; momentum has no effect."""


class InstanceNorm2D(_InstanceNorm, data_format="NCHW"):
    """Normalise each channel of each sample of [N, C, H, W]; momentum has no effect."""


class InstanceNorm3D(_InstanceNorm, data_format="NCDHW"):
    """Normalise each channel of each sample of [N, C, D, H, W]; momentum has no effect."""


class LocalResponseNorm(FunctionLayer, function=functional.local_response_norm):
    """x / (k + alpha · mean of the squares of neighbouring channels) ** beta."""


class SpectralNorm(Layer):
    """forward(weight) is weight / its largest singular value, estimated from two fixed random vectors.

    The weight is a matrix of weight.shape[dim] rows; power_iters steps improve the estimate.
    """

    def __init__(
        self,
        weight_shape: Sequence[int],
        dim: int = 0,
        power_iters: int = 1,
        eps: float = 1e-12,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._dim, self._power_iters, self._eps = dim % len(weight_shape), power_iters, eps
        rows = weight_shape[self._dim]
        fixed, spread = ParamAttr(trainable=False), Normal(0.0, 1.0)
        self.weight_u = self.create_parameter([rows], fixed, default_initializer=spread)
        self.weight_v = self.create_parameter(
            [math.prod(weight_shape) // rows], fixed, default_initializer=spread
        )

    def forward(self, weight: Any) -> Any:
        def divided(weight: torch.Tensor, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return spectral_normalized(weight, u, v, self._dim, self._power_iters, self._eps)

        return apply("spectral_norm", divided, weight, self.weight_u, self.weight_v)
