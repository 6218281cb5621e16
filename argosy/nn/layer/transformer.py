"""Attention and the encoder of the Transformer (Vaswani et al. 2017)."""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError, UnsupportedError
from argosy.framework.layer import apply
from argosy.nn import functional
from argosy.nn.layer.common import Dropout, Linear
from argosy.nn.layer.container import LayerList
from argosy.nn.layer.layers import Layer
from argosy.nn.layer.norm import LayerNorm


class MultiHeadAttention(Layer):
    """softmax(q · kᵀ / sqrt(width of a head) + mask) · v in num_heads heads, between linear layers.

    forward(query, key=None, value=None, attn_mask=None): [N, length, embed_dim]; key and value default to the
    query. The mask is added to [N, heads, length, length]; a bool or integer mask keeps the entries that are not 0.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        kdim: int | None = None,
        vdim: int | None = None,
        need_weights: bool = False,
        weight_attr: Any = None,
        bias_attr: Any = None,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads:
            raise ConfigError(
                f"MultiHeadAttention: embed_dim={embed_dim} is not divisible by {num_heads} heads; use a divisor"
            )
        self.num_heads, self.head_dim, self.need_weights = num_heads, embed_dim // num_heads, need_weights
        self.dropout = dropout
        self.q_proj = Linear(embed_dim, embed_dim, weight_attr, bias_attr)
        self.k_proj = Linear(kdim or embed_dim, embed_dim, weight_attr, bias_attr)
        self.v_proj = Linear(vdim or embed_dim, embed_dim, weight_attr, bias_attr)
        self.out_proj = Linear(embed_dim, embed_dim, weight_attr, bias_attr)

    def forward(
        self, query: Any, key: Any = None, value: Any = None, attn_mask: Any = None, cache: Any = None
    ) -> Any:
        if cache is not None:
            raise UnsupportedError(
                "MultiHeadAttention: cache is for decoding step by step, which is not supported"
            )
        key = query if key is None else key
        value = key if value is None else value
        q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        weights = apply("attention_weights", self._weights, q, k, attn_mask)
        weights = functional.dropout(weights, self.dropout, training=self.training)
        out = self.out_proj(apply("attention", self._mix, weights, v))
        return (out, weights) if self.need_weights else out

    def _heads(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:-1], self.num_heads, self.head_dim).transpose(1, 2)

    def _weights(self, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
        scores = self._heads(q) @ self._heads(k).mT / math.sqrt(self.head_dim)
        if mask is not None:
            scores = scores + (mask if mask.is_floating_point() else (mask.to(scores.dtype) - 1) * 1e9)
        return torch.softmax(scores, -1)

    def _mix(self, weights: Tensor, v: Tensor) -> Tensor:
        return (weights @ self._heads(v)).transpose(1, 2).flatten(2)


class _TransformerLayer(Layer):
    """Attentions, then two linear layers: each part with dropout, its input added, and LayerNorm.

    weight_attr and bias_attr are one attribute, or a list with those of each attention and of the linear layers.
    """

    _attentions: ClassVar[tuple[str, ...]] = ()
    """The names of the attentions."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int,
        dropout: float = 0.1,
        activation: str = "relu",
        attn_dropout: float | None = None,
        act_dropout: float | None = None,
        normalize_before: bool = False,
        weight_attr: Any = None,
        bias_attr: Any = None,
    ) -> None:
        super().__init__()
        self._config = {
            "d_model": d_model,
            "nhead": nhead,
            "dim_feedforward": dim_feedforward,
            "dropout": dropout,
            "activation": activation,
            "attn_dropout": attn_dropout,
            "act_dropout": act_dropout,
            "normalize_before": normalize_before,
            "weight_attr": weight_attr,
            "bias_attr": bias_attr,
        }
        if activation not in ("relu", "gelu"):
            raise ConfigError(f"{type(self).__name__}: activation={activation!r}; use 'relu' or 'gelu'")
        weights, biases = self._attributes(weight_attr), self._attributes(bias_attr)
        rate = dropout if attn_dropout is None else attn_dropout
        for i, name in enumerate(self._attentions):
            attention = MultiHeadAttention(d_model, nhead, rate, weight_attr=weights[i], bias_attr=biases[i])
            setattr(self, name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, weights[-1], biases[-1])
        self.dropout = Dropout(dropout if act_dropout is None else act_dropout)
        self.linear2 = Linear(dim_feedforward, d_model, weights[-1], biases[-1])
        numbers = range(1, len(self._attentions) + 2)
        for i in numbers:
            setattr(self, f"norm{i}", LayerNorm(d_model))
        for i in numbers:
            setattr(self, f"dropout{i}", Dropout(dropout))
        self.normalize_before = normalize_before
        self.activation = functional.relu if activation == "relu" else functional.gelu

    def _attributes(self, attr: Any) -> Sequence[Any]:
        """The attributes of the attentions and of the linear layers."""
        raise NotImplementedError

    def _feed_forward(self, x: Any) -> Any:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_TransformerLayer):
    """Attention, then two linear layers, each part with dropout, its input added, and LayerNorm."""

    _attentions = ("self_attn",)

    def _attributes(self, attr: Any) -> Sequence[Any]:
        return _pair(attr)

    def forward(self, src: Any, src_mask: Any = None) -> Any:
        x = self.norm1(src) if self.normalize_before else src
        src = src + self.dropout1(self.self_attn(x, attn_mask=src_mask))
        src = src if self.normalize_before else self.norm1(src)
        x = self.norm2(src) if self.normalize_before else src
        src = src + self.dropout2(self._feed_forward(x))
        return src if self.normalize_before else self.norm2(src)


class TransformerEncoder(Layer):
    """num_layers layers like encoder_layer, which is the first of them; then `norm`, if given."""

    def __init__(self, encoder_layer: TransformerEncoderLayer, num_layers: int, norm: Any = None) -> None:
        super().__init__()
        others = [type(encoder_layer)(**encoder_layer._config) for _ in range(num_layers - 1)]
        self.layers = LayerList([encoder_layer, *others])
        self.norm = norm

    def forward(self, src: Any, src_mask: Any = None) -> Any:
        for layer in self.layers:
            src = layer(src, src_mask)
        return src if self.norm is None else self.norm(src)


def _pair(attr: Any) -> tuple[Any, Any]:
    """Attributes for attention and for the linear layers: one for both, or a list of two."""
    if not isinstance(attr, list | tuple):
        return attr, attr
    if len(attr) != 2:
        raise ConfigError(
            f"TransformerEncoderLayer: {len(attr)} attributes; give one, or two: attention, linear"
        )
    return attr[0], attr[1]
