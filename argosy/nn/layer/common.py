"""Linear, Embedding, dropout, and layers that change shapes and sizes."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from argosy.nn import functional
from argosy.nn.layer.function_layer import FunctionLayer, LayerFamily
from argosy.nn.layer.layers import Layer
from argosy.tensor.manipulation import flatten


class Linear(Layer):
    """x · weight + bias, the weight of shape [in_features, out_features] (transposed in torch)."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        weight_attr: Any = None,
        bias_attr: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.weight = self.create_parameter([in_features, out_features], weight_attr)
        self.bias = self.create_parameter([out_features], bias_attr, is_bias=True)
        self._size, self._name = (in_features, out_features), name

    def forward(self, input: Any) -> Any:
        return functional.linear(input, self.weight, self.bias, name=self._name)

    def extra_repr(self) -> str:
        return "in_features={}, out_features={}".format(*self._size)


class Embedding(Layer):
    """The rows of a table [num_embeddings, embedding_dim] by id; the id padding_idx gives zeros."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        sparse: bool = False,
        weight_attr: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.weight = self.create_parameter([num_embeddings, embedding_dim], weight_attr)
        self._padding_idx, self._sparse, self._name = padding_idx, sparse, name

    def forward(self, x: Any) -> Any:
        return functional.embedding(x, self.weight, self._padding_idx, self._sparse, name=self._name)

    def extra_repr(self) -> str:
        return "{}, {}".format(*self.weight.shape)


class Dropout(Layer):
    """Elements are zero with probability p while training; see functional.dropout for `mode`."""

    def __init__(
        self, p: float = 0.5, axis: Any = None, mode: str = "upscale_in_train", name: str | None = None
    ) -> None:
        super().__init__()
        self.p, self.axis, self.mode, self._name = p, axis, mode, name

    def forward(self, input: Any) -> Any:
        return functional.dropout(input, self.p, self.axis, self.training, self.mode, name=self._name)

    def extra_repr(self) -> str:
        return f"p={self.p}, mode={self.mode}"


class Dropout2D(Layer):
    """Whole channels are zero with probability p while training."""

    def __init__(self, p: float = 0.5, data_format: str = "NCHW", name: str | None = None) -> None:
        super().__init__()
        self.p, self.data_format, self._name = p, data_format, name

    def forward(self, input: Any) -> Any:
        return functional.dropout2d(input, self.p, self.training, self.data_format, name=self._name)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class Dropout3D(Layer):
    """Whole channels of volumes are zero with probability p while training."""

    def __init__(self, p: float = 0.5, data_format: str = "NCDHW", name: str | None = None) -> None:
        super().__init__()
        self.p, self.data_format, self._name = p, data_format, name

    def forward(self, input: Any) -> Any:
        return functional.dropout3d(input, self.p, self.training, self.data_format, name=self._name)


class AlphaDropout(Layer):
    """Dropout for networks of selu; see functional.alpha_dropout."""

    def __init__(self, p: float = 0.5, name: str | None = None) -> None:
        super().__init__()
        self.p, self._name = p, name

    def forward(self, input: Any) -> Any:
        return functional.alpha_dropout(input, self.p, self.training, name=self._name)


class Bilinear(Layer):
    """x1 · weight[k] · x2 + bias for every k; weight is [out_features, in1_features, in2_features]."""

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        weight_attr: Any = None,
        bias_attr: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.weight = self.create_parameter([out_features, in1_features, in2_features], weight_attr)
        self.bias = self.create_parameter([1, out_features], bias_attr, is_bias=True)
        self._name = name

    def forward(self, x1: Any, x2: Any) -> Any:
        return functional.bilinear(x1, x2, self.weight, self.bias, self._name)


class Flatten(Layer):
    """The dimensions from start_axis to stop_axis (included) flattened into one."""

    def __init__(self, start_axis: int = 1, stop_axis: int = -1) -> None:
        super().__init__()
        self.start_axis, self.stop_axis = start_axis, stop_axis

    def forward(self, input: Any) -> Any:
        return flatten(input, self.start_axis, self.stop_axis)


class Upsample(FunctionLayer, function=functional.interpolate):
    """Images of another size; see functional.interpolate."""


class UpsamplingNearest2D(
    FunctionLayer, function=functional.interpolate, parameters="size scale_factor data_format name"
):
    """Upsample, mode nearest."""


class UpsamplingBilinear2D(
    FunctionLayer,
    function=functional.interpolate,
    parameters="size scale_factor data_format name",
    mode="bilinear",
    align_corners=True,
):
    """Upsample, mode bilinear with aligned corners."""


class _Pad(LayerFamily):
    def __init__(
        self,
        padding: Any,
        mode: str = "constant",
        value: float = 0.0,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__()
        spatial = len(data_format) - 2
        self._pad = [padding] * 2 * spatial if isinstance(padding, int) else padding
        self._mode, self._value, self._data_format, self._name = mode, value, data_format, name

    def forward(self, x: Any) -> Any:
        return functional.pad(x, self._pad, self._mode, self._value, self._data_format, name=self._name)


class Pad1D(_Pad, data_format="NCL"):
    """Pad [N, C, L]: padding is [left, right] or one number; modes as in functional.pad."""


class Pad2D(_Pad, data_format="NCHW"):
    """Pad [N, C, H, W]: padding is [left, right, top, bottom] or one number; modes as in functional.pad."""


class Pad3D(_Pad, data_format="NCDHW"):
    """Pad [N, C, D, H, W]: padding is [left, right, top, bottom, front, back] or one number."""


class CosineSimilarity(FunctionLayer, function=functional.cosine_similarity, inputs=2):
    """The cosine of the angle between x1 and x2 along an axis."""


class PixelShuffle(FunctionLayer, function=functional.pixel_shuffle):
    """[N, C · r², H, W] becomes [N, C, H · r, W · r]."""


class Unfold(FunctionLayer, function=functional.unfold):
    """The windows of images as columns; see functional.unfold."""
