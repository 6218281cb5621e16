"""The decoder of the Transformer, and the whole Transformer (Vaswani et al. 2017)."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

import torch

from argosy.engine.errors import ConfigError
from argosy.framework.layer import apply
from argosy.nn.layer.container import LayerList
from argosy.nn.layer.layers import Layer
from argosy.nn.layer.norm import LayerNorm
from argosy.nn.layer.transformer import TransformerEncoder, TransformerEncoderLayer, _TransformerLayer


class TransformerDecoderLayer(_TransformerLayer):
    """Attention on itself, attention on the encoder's output, then two linear layers.

    Each part has dropout, its input added, and LayerNorm. weight_attr and bias_attr are one attribute, or a list of
    three: self-attention, cross-attention, linear layers.
    """

    _attentions = ("self_attn", "cross_attn")

    def _attributes(self, attr: Any) -> Sequence[Any]:
        return _triple(attr)

    def forward(
        self, tgt: Any, memory: Any, tgt_mask: Any = None, memory_mask: Any = None, cache: Any = None
    ) -> Any:
        if cache is not None:
            raise ConfigError(
                "TransformerDecoderLayer: cache is for decoding step by step, which is not supported"
            )

        def attend(x: Any) -> Any:
            return self.dropout1(self.self_attn(x, attn_mask=tgt_mask))

        def look_at_memory(x: Any) -> Any:
            return self.dropout2(self.cross_attn(x, memory, memory, memory_mask))

        def feed_forward(x: Any) -> Any:
            return self.dropout3(self._feed_forward(x))

        parts = (attend, self.norm1), (look_at_memory, self.norm2), (feed_forward, self.norm3)
        for part, norm in parts:
            tgt = tgt + part(norm(tgt)) if self.normalize_before else norm(tgt + part(tgt))
        return tgt


class TransformerDecoder(Layer):
    """num_layers layers like decoder_layer, which is the first of them; then `norm`, if given."""

    def __init__(self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Any = None) -> None:
        super().__init__()
        others = [type(decoder_layer)(**decoder_layer._config) for _ in range(num_layers - 1)]
        self.layers = LayerList([decoder_layer, *others])
        self.norm = norm

    def forward(
        self, tgt: Any, memory: Any, tgt_mask: Any = None, memory_mask: Any = None, cache: Any = None
    ) -> Any:
        for layer in self.layers:
            tgt = layer(tgt, memory, tgt_mask, memory_mask, cache)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Layer):
    """An encoder and a decoder, each with a LayerNorm at its end; or custom_encoder and custom_decoder."""

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str = "relu",
        attn_dropout: float | None = None,
        act_dropout: float | None = None,
        normalize_before: bool = False,
        weight_attr: Any = None,
        bias_attr: Any = None,
        custom_encoder: Any = None,
        custom_decoder: Any = None,
    ) -> None:
        super().__init__()
        options = (dropout, activation, attn_dropout, act_dropout, normalize_before)
        weights, biases = _triple(weight_attr), _triple(bias_attr)
        if custom_encoder is None:
            first = TransformerEncoderLayer(
                d_model, nhead, dim_feedforward, *options, [weights[0], weights[2]], [biases[0], biases[2]]
            )
            custom_encoder = TransformerEncoder(first, num_encoder_layers, LayerNorm(d_model))
        if custom_decoder is None:
            layer = TransformerDecoderLayer(d_model, nhead, dim_feedforward, *options, weights, biases)
            custom_decoder = TransformerDecoder(layer, num_decoder_layers, LayerNorm(d_model))
        self.encoder, self.decoder = custom_encoder, custom_decoder
        self.d_model, self.nhead = d_model, nhead

    def forward(
        self, src: Any, tgt: Any, src_mask: Any = None, tgt_mask: Any = None, memory_mask: Any = None
    ) -> Any:
        memory = self.encoder(src, src_mask)
        return self.decoder(tgt, memory, tgt_mask, memory_mask)

    def generate_square_subsequent_mask(self, length: int) -> Any:
        """[length, length]: 0 on and below the diagonal, -inf above, so that a step sees no later ones."""
        return apply("mask", lambda: torch.full((length, length), float("-inf")).triu(1))


def _triple(attr: Any) -> list[Any]:
    """Attributes for self-attention, cross-attention and linear layers: one for all, two, or three."""
    if not isinstance(attr, list | tuple):
        return [attr] * 3
    if len(attr) not in (2, 3):
        raise ConfigError(
            f"Transformer: {len(attr)} attributes; give one, or three: attention, cross-attention, linear"
        )
    return [attr[0], attr[-2], attr[-1]] if len(attr) == 3 else [attr[0], attr[0], attr[1]]
