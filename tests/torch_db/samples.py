"""Modules of our own where torch's databases are blind: dropout, stacked RNNs, masks, buffers, parametrizations."""

# SPDX-License-Identifier: Apache-2.0
import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from tests.torch_db import user_modules
from tests.torch_db.modules import ModuleSample


def floats(*shape: int) -> Tensor:
    """Values around 0 that are not all different in sign; the same for the same shape."""
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    return torch.randn(shape, generator=generator).requires_grad_()


def ids(high: int, *shape: int) -> Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(high))


def causal(length: int) -> Tensor:
    """A float mask: -inf above the diagonal."""
    return torch.triu(torch.full((length, length), float("-inf")), 1)


def samples() -> dict[str, ModuleSample]:
    """All of them, by name."""
    groups = (_dropout(), _recurrent(), _norms(), _losses(), _embeddings(), _attention(), _pools(), _others())
    return {sample.name: sample for sample in itertools.chain(*groups)}


def _dropout() -> Iterator[ModuleSample]:
    shapes: dict[type[nn.Module], tuple[int, ...]] = {
        nn.Dropout: (40, 50),
        nn.Dropout1d: (20, 30, 4),
        nn.Dropout2d: (20, 30, 3, 2),
        nn.Dropout3d: (20, 30, 2, 2, 2),
        nn.AlphaDropout: (40, 50),
        nn.FeatureAlphaDropout: (20, 30, 3, 2),
    }
    for kind, shape in shapes.items():
        for p in (0.0, 0.3, 1.0):
            yield ModuleSample(f"{kind.__name__} p={p}", partial(kind, p), (floats(*shape),))
    yield ModuleSample(
        "Dropout inplace", lambda: _sequential(nn.Linear(6, 50), nn.Dropout(0.3, True)), (floats(40, 6),)
    )
    yield ModuleSample("RReLU", nn.RReLU, (floats(20, 30),))
    yield ModuleSample(
        "RReLU inplace", lambda: _sequential(nn.Linear(6, 5), nn.RReLU(inplace=True)), (floats(4, 6),)
    )


def _sequential(*modules: nn.Module) -> nn.Module:
    return nn.Sequential(*modules)


def _recurrent() -> Iterator[ModuleSample]:
    options: dict[str, dict[str, Any]] = {
        "2 layers": {"num_layers": 2},
        "3 layers, dropout": {"num_layers": 3, "dropout": 0.5},
        "bidirectional": {"bidirectional": True},
        "2 layers, bidirectional, dropout": {"num_layers": 2, "bidirectional": True, "dropout": 0.5},
        "no bias": {"bias": False},
    }
    x = floats(2, 3, 4)  # a step of time is a few dozen nodes
    for kind in (nn.RNN, nn.LSTM, nn.GRU):
        for option, arguments in options.items():
            make = partial(kind, 4, 5, batch_first=True, **arguments)
            yield ModuleSample(f"{kind.__name__} {option}", make, (x,))
        yield ModuleSample(f"{kind.__name__} time first", partial(kind, 4, 5), (x,))
    projected = partial(nn.LSTM, 4, 5, proj_size=3, batch_first=True)
    yield ModuleSample("LSTM proj_size, bidirectional", partial(projected, bidirectional=True), (x,))
    yield ModuleSample("LSTM proj_size, 2 layers", partial(projected, num_layers=2), (x,))


def _norms() -> Iterator[ModuleSample]:
    shapes = {1: (4, 3, 5), 2: (4, 3, 5, 4), 3: (4, 3, 5, 4, 2)}
    norms: dict[int, tuple[type[nn.Module], type[nn.Module]]] = {
        1: (nn.BatchNorm1d, nn.InstanceNorm1d),
        2: (nn.BatchNorm2d, nn.InstanceNorm2d),
        3: (nn.BatchNorm3d, nn.InstanceNorm3d),
    }
    for dims, (batch_norm, instance_norm) in norms.items():
        x = floats(*shapes[dims])
        name = batch_norm.__name__
        yield ModuleSample(f"{name} momentum=None", partial(batch_norm, 3, momentum=None), (x,))
        yield ModuleSample(f"{name} no statistics", partial(batch_norm, 3, track_running_stats=False), (x,))
        yield ModuleSample(f"{name} 0 rows", partial(batch_norm, 3), (floats(0, *shapes[dims][1:]),))
        for affine in (False, True):
            make = partial(instance_norm, 3, affine=affine, track_running_stats=True)
            yield ModuleSample(f"{instance_norm.__name__} statistics, affine={affine}", make, (x,))
    yield ModuleSample("BatchNorm1d of 2 dimensions", partial(nn.BatchNorm1d, 6), (floats(8, 6),))


def _losses() -> Iterator[ModuleSample]:
    ended = torch.tensor([[3, 0, -1, 1, 2], [0, -1, 2, 3, 1], [4, 3, 2, 1, 0]])
    for reduction in ("none", "mean", "sum"):
        make = partial(nn.MultiLabelMarginLoss, reduction=reduction)
        yield ModuleSample(f"MultiLabelMarginLoss 2-d, {reduction}", make, (floats(3, 5), ended))
        yield ModuleSample(f"MultiLabelMarginLoss 1-d, {reduction}", make, (floats(5), ended[0]))
        ctc = partial(nn.CTCLoss, reduction=reduction, zero_infinity=True)
        logits = torch.log_softmax(floats(12, 3, 6), -1).detach().requires_grad_()
        lengths = (torch.tensor([12, 11, 10]), torch.tensor([4, 3, 5]))
        targets = ids(5, 3, 5) + 1
        yield ModuleSample(f"CTCLoss lengths fed, {reduction}", ctc, (logits, targets, *lengths))
        constants = {"input_lengths": (12, 11, 10), "target_lengths": (4, 3, 5)}
        yield ModuleSample(f"CTCLoss lengths known, {reduction}", ctc, (logits, targets), None, constants)
    make_adaptive = partial(nn.AdaptiveLogSoftmaxWithLoss, 8, 20, [5, 12])
    yield ModuleSample("AdaptiveLogSoftmaxWithLoss", make_adaptive, (floats(6, 8), ids(20, 6)))
    yield ModuleSample(
        "CrossEntropyLoss ignored", nn.CrossEntropyLoss, (floats(4, 5), torch.tensor([1, -100, 3, 4]))
    )


def _embeddings() -> Iterator[ModuleSample]:
    options: dict[str, dict[str, Any]] = {
        "max_norm": {"max_norm": 1.0},
        "padding_idx": {"padding_idx": 2},
        "scale_grad_by_freq": {"scale_grad_by_freq": True},
        "max_norm, padding_idx": {"max_norm": 0.5, "norm_type": 1.0, "padding_idx": 0},
    }
    for option, arguments in options.items():
        yield ModuleSample(f"Embedding {option}", partial(nn.Embedding, 9, 4, **arguments), (ids(9, 5, 6),))
    for mode in ("sum", "mean", "max"):
        make = partial(nn.EmbeddingBag, 9, 4, mode=mode)
        yield ModuleSample(f"EmbeddingBag {mode}", make, (ids(9, 5, 6),))
        yield ModuleSample(f"EmbeddingBag {mode}, offsets", make, (ids(9, 12), torch.tensor([0, 3, 3, 7])))
        padded = partial(nn.EmbeddingBag, 9, 4, mode=mode, padding_idx=1)
        yield ModuleSample(f"EmbeddingBag {mode}, padding_idx", padded, (ids(9, 5, 6),))
    weighted = {"per_sample_weights": floats(5, 6)}
    yield ModuleSample(
        "EmbeddingBag weighted", partial(nn.EmbeddingBag, 9, 4, mode="sum"), (ids(9, 5, 6),), weighted
    )
    yield ModuleSample("EmbeddingBag max_norm", partial(nn.EmbeddingBag, 9, 4, max_norm=1.0), (ids(9, 5, 6),))


def _attention() -> Iterator[ModuleSample]:
    attention = partial(nn.MultiheadAttention, 8, 2, batch_first=True)
    x, square = floats(3, 5, 8), causal(5)
    padding = torch.tensor([[False] * 5, [False] * 4 + [True], [False] * 3 + [True] * 2])
    name = "MultiheadAttention"
    yield ModuleSample(f"{name} constant mask", attention, (x, x, x), None, {"attn_mask": square})
    yield ModuleSample(
        f"{name} constant boolean mask", attention, (x, x, x), None, {"attn_mask": square != 0}
    )
    yield ModuleSample(f"{name} fed mask", attention, (x, x, x), {"attn_mask": square})
    yield ModuleSample(f"{name} fed padding", attention, (x, x, x), {"key_padding_mask": padding})
    causal_only = {"attn_mask": square, "is_causal": True, "need_weights": False}
    yield ModuleSample(f"{name} is_causal", attention, (x, x, x), None, causal_only)
    dropped = partial(
        nn.MultiheadAttention, 8, 2, dropout=0.3, bias=False, add_bias_kv=True, batch_first=True
    )
    yield ModuleSample(f"{name} dropout, bias_kv", dropped, (x, x, x))
    layer = partial(nn.TransformerEncoderLayer, 8, 2, 16, batch_first=True)
    encoder = partial(user_modules.encoder, layer, dropout=0.0)
    yield ModuleSample("TransformerEncoder constant mask", encoder, (x,), None, {"mask": square})
    yield ModuleSample(
        "TransformerEncoder is_causal", encoder, (x,), None, {"mask": square, "is_causal": True}
    )
    yield ModuleSample("TransformerEncoder padding", encoder, (x,), {"src_key_padding_mask": padding})
    yield ModuleSample("TransformerEncoder dropout", partial(user_modules.encoder, layer, dropout=0.1), (x,))


def _pools() -> Iterator[ModuleSample]:
    yield ModuleSample(
        "FractionalMaxPool2d", partial(nn.FractionalMaxPool2d, 2, output_ratio=0.6), (floats(3, 2, 9, 9),)
    )
    indices = partial(nn.FractionalMaxPool2d, 2, output_size=4, return_indices=True)
    yield ModuleSample("FractionalMaxPool2d indices", indices, (floats(3, 2, 9, 9),))
    yield ModuleSample(
        "FractionalMaxPool3d", partial(nn.FractionalMaxPool3d, 2, output_size=3), (floats(2, 2, 6, 6, 6),)
    )
    yield ModuleSample("Fold", partial(nn.Fold, (4, 5), (2, 2)), (floats(3, 12, 12),))
    yield ModuleSample("Unfold", partial(nn.Unfold, (2, 3), padding=1, stride=2), (floats(3, 2, 6, 7),))
    yield ModuleSample("MaxUnpool2d", user_modules.PoolAndUnpool, (floats(3, 2, 6, 6),))


def _others() -> Iterator[ModuleSample]:
    yield ModuleSample("Bilinear", partial(nn.Bilinear, 4, 5, 3), (floats(6, 4), floats(6, 5)))
    yield ModuleSample("tied weights", user_modules.Tied, (ids(7, 3, 4),))
    yield ModuleSample("if self.training", user_modules.ScaledInTraining, (floats(3, 4),))
    yield ModuleSample("if self.training around dropout", user_modules.DropsInTraining, (floats(3, 4),))
    yield ModuleSample("buffer reassigned", user_modules.ReassignedBuffer, (floats(3, 4),))
    yield ModuleSample("buffer changed in place", user_modules.ChangedBuffer, (floats(3, 4),))
    yield ModuleSample("LazyLinear", partial(nn.LazyLinear, 3), (floats(5, 4),))
    yield ModuleSample("LazyBatchNorm1d", nn.LazyBatchNorm1d, (floats(5, 4),))
    for name in ("weight_norm", "spectral_norm", "orthogonal"):
        parametrize = getattr(parametrizations, name)
        yield ModuleSample(name, partial(user_modules.parametrized, parametrize), (floats(5, 4),))
