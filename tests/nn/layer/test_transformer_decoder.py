"""The decoder and the whole Transformer are torch's with the same weights."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest
import torch

from argosy import nn
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import global_scope


def value(parameter: Any) -> torch.Tensor:
    return global_scope().get(parameter.name).clone()


def attention_of(layer: Any) -> dict[str, torch.Tensor]:
    parts = (layer.q_proj, layer.k_proj, layer.v_proj)
    return {
        "in_proj_weight": torch.cat([value(p.weight).T for p in parts]),
        "in_proj_bias": torch.cat([value(p.bias) for p in parts]),
        "out_proj.weight": value(layer.out_proj.weight).T,
        "out_proj.bias": value(layer.out_proj.bias),
    }


def weights_of(layer: Any, attentions: dict[str, str]) -> dict[str, torch.Tensor]:
    """The state_dict of torch's layer; its attentions have other names."""
    state = {
        f"{theirs}.{name}": tensor
        for ours, theirs in attentions.items()
        for name, tensor in attention_of(getattr(layer, ours)).items()
    }
    for linear in (layer.linear1, layer.linear2):
        name = "linear1" if linear is layer.linear1 else "linear2"
        state |= {f"{name}.weight": value(linear.weight).T, f"{name}.bias": value(linear.bias)}
    for number in range(1, len(attentions) + 2):
        norm = getattr(layer, f"norm{number}")
        state |= {f"norm{number}.weight": value(norm.weight), f"norm{number}.bias": value(norm.bias)}
    return state


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # of torch's module
@pytest.mark.parametrize("normalize_before", [False, True])
def test_the_transformer_is_torch_s(normalize_before: bool) -> None:
    program = default_main_program()
    src, tgt = program.data("src", [None, 5, 8], "float32"), program.data("tgt", [None, 3, 8], "float32")
    ours = nn.Transformer(8, 2, 1, 2, 16, 0.0, "gelu", normalize_before=normalize_before)
    out = ours(src, tgt, tgt_mask=ours.generate_square_subsequent_mask(3))
    exe = Executor()
    exe.run(default_startup_program())
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype("float32") for shape in ((2, 5, 8), (2, 3, 8))]
    (got,) = exe.run(feed={"src": arrays[0], "tgt": arrays[1]}, fetch_list=[out])
    theirs = torch.nn.Transformer(
        8, 2, 1, 2, 16, 0.0, "gelu", batch_first=True, norm_first=normalize_before
    ).eval()
    state = {
        f"encoder.layers.0.{name}": tensor
        for name, tensor in weights_of(ours.encoder.layers[0], {"self_attn": "self_attn"}).items()
    }
    for number in (0, 1):
        layer = weights_of(
            ours.decoder.layers[number], {"self_attn": "self_attn", "cross_attn": "multihead_attn"}
        )
        state |= {f"decoder.layers.{number}.{name}": tensor for name, tensor in layer.items()}
    for part in ("encoder", "decoder"):
        norm = getattr(ours, part).norm
        state |= {f"{part}.norm.weight": value(norm.weight), f"{part}.norm.bias": value(norm.bias)}
    theirs.load_state_dict(state)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(3)
    expected = theirs(*map(torch.from_numpy, arrays), tgt_mask=mask)
    np.testing.assert_allclose(got, expected.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_unsupported_arguments_raise() -> None:
    layer = nn.TransformerDecoderLayer(8, 2, 16)
    x = default_main_program().data("x", [None, 3, 8], "float32")
    with pytest.raises(ConfigError, match="cache"):
        layer(x, x, cache=1)
    with pytest.raises(ConfigError, match="use 'relu' or 'gelu'"):
        nn.TransformerDecoderLayer(8, 2, 16, activation="elu")
    with pytest.raises(ConfigError, match="4 attributes"):
        nn.Transformer(8, 2, weight_attr=[1, 2, 3, 4])
