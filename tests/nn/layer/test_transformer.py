"""Attention and the encoder of the Transformer, against torch."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from argosy import nn, static
from argosy.engine.errors import ConfigError
from argosy.engine.runtime.scope import global_scope

Agree = Callable[..., None]
Values = dict[str, torch.Tensor]


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, heads: int, mask: Any = None
) -> torch.Tensor:
    q, k, v = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("masked", [False, True])
def test_attention_is_torch_s(layer_agrees: Agree, masked: bool) -> None:
    def line(p: Values, i: int, x: torch.Tensor) -> torch.Tensor:
        return x @ p[f"linear_{i}.w_0"] + p[f"linear_{i}.b_0"]

    def expect(p: Values, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        mask = torch.tensor([[True, False, True]] * 4) if masked else None
        return line(p, 3, attention(line(p, 0, x), line(p, 1, memory), line(p, 2, memory), 2, mask))

    def make() -> Callable[..., Any]:
        mask = np.array([[1, 0, 1]] * 4) if masked else None
        return partial(nn.MultiHeadAttention(6, 2), attn_mask=mask)

    layer_agrees(make, expect, (None, 4, 6), (None, 3, 6), rtol=1e-3)


@pytest.mark.parametrize("before", [False, True])
def test_an_encoder_layer_in_testing_is_torch_s(before: bool) -> None:
    layer = nn.TransformerEncoderLayer(6, 2, 8, activation="gelu", normalize_before=before)
    out = layer(static.data("x", [None, 4, 6]))
    exe = static.Executor()
    exe.run(static.default_startup_program())
    module = torch.nn.TransformerEncoderLayer(
        6, 2, 8, activation="gelu", batch_first=True, norm_first=before
    ).eval()
    value = global_scope().get
    with torch.no_grad():
        for p in layer.parameters():
            value(p.name).normal_(0, 0.5)
        module.self_attn.in_proj_weight.copy_(torch.cat([value(f"linear_{i}.w_0").T for i in range(3)]))
        module.self_attn.in_proj_bias.copy_(torch.cat([value(f"linear_{i}.b_0") for i in range(3)]))
        for own, name in (
            (module.self_attn.out_proj, "linear_3"),
            (module.linear1, "linear_4"),
            (module.linear2, "linear_5"),
        ):
            own.weight.copy_(value(f"{name}.w_0").T)
            own.bias.copy_(value(f"{name}.b_0"))
        for norm, name in ((module.norm1, "layer_norm_0"), (module.norm2, "layer_norm_1")):
            norm.weight.copy_(value(f"{name}.w_0"))
            norm.bias.copy_(value(f"{name}.b_0"))
    testing = static.default_main_program().clone(for_test=True)
    for batch in (1, 3):
        x = np.random.default_rng(batch).standard_normal((batch, 4, 6)).astype("float32")
        fetched = exe.run(testing, {"x": x}, [out.name])[0]
        with torch.no_grad():
            expected = module(torch.from_numpy(x))
        np.testing.assert_allclose(fetched, expected, rtol=1e-3, atol=1e-4)


def test_an_encoder_has_layers_of_its_own_and_trains() -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8), 3, nn.LayerNorm(6))
    out = encoder(static.data("x", [None, 4, 6]))
    assert len(encoder.layers) == 3
    assert len({p.name for p in encoder.parameters()}) == 3 * 16 + 2
    assert len(static.append_backward((out * out).mean())) == 3 * 16 + 2


def test_transformers_refuse_what_does_not_fit() -> None:
    with pytest.raises(ConfigError, match="embed_dim=5 is not divisible by 2 heads"):
        nn.MultiHeadAttention(5, 2)
    with pytest.raises(ConfigError, match="use 'relu' or 'gelu'"):
        nn.TransformerEncoderLayer(4, 2, 8, activation="tanh")
    with pytest.raises(ConfigError, match="3 attributes; give one, or two"):
        nn.TransformerEncoderLayer(4, 2, 8, weight_attr=[None] * 3)
    with pytest.raises(ConfigError, match="cache is for decoding"):
        nn.MultiHeadAttention(4, 2)(static.data("x", [None, 3, 4]), cache=())
