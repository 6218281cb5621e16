"""The models that are mutated: small, and between them every kernel of ours and most kinds of nodes."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

import argosy as paddle
from argosy import static
from argosy.engine import kernels
from argosy.engine.ir import names
from argosy.engine.ir.serialize import to_dict
from argosy.engine.ops import add_act, bn_act, ctc_loss, recurrent, relu_depthwise
from argosy.engine.ops.updates import FUSED, update_op

Content = dict[str, Any]
"""What a .pdmodel holds: the program, its feeds and its fetches."""


def contents() -> list[Content]:
    """One content for each model."""
    return [_built(build) for build in _MODELS]


def _built(build: Callable[[], Any]) -> Content:
    main, startup = static.Program("main"), static.Program("startup")
    with static.program_guard(main, startup), names.guard(), static.scope_guard(static.Scope()):
        fetches = build()
        program = startup if fetches is None else main
        fetched = [] if fetches is None else [v.name for v in fetches]
        return {
            "program": to_dict(program),
            "save_id": "",
            "feeds": list(program.feeds()),
            "fetches": fetched,
        }


def _data(name: str, shape: list[int | None], dtype: str = "float32") -> Any:
    return static.data(name, shape, dtype)


def _call(function: Callable[..., Any], *args: Any) -> Any:
    return static.default_main_program().call(function, args, {})


def _classifier() -> list[Any]:
    x, y = _data("x", [None, 3, 6, 6]), _data("y", [None, 1], "int64")
    h = static.nn.batch_norm(static.nn.conv2d(x, 4, 3), act="relu")
    h = F.max_pool2d(h, 2).flatten(1)
    loss = F.cross_entropy(static.nn.fc(h, 5), y.squeeze(1))
    paddle.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return [loss]


def _initial_values() -> None:
    _classifier()


def _attention() -> list[Any]:
    ids = _data("ids", [None, 4], "int64")
    table = static.default_main_program().state("table", [10, 8], "float32", trainable=True)
    h = F.layer_norm(F.embedding(ids, table), (8,))
    h = F.scaled_dot_product_attention(*[h.reshape(-1, 1, 4, 8)] * 3)
    loss = F.gelu(h).square().mean()
    paddle.optimizer.AdamW(0.1).minimize(loss)
    return [loss]


def _sizes() -> list[Any]:
    x = _data("x", [None, None, 4])
    y = torch.cat([x, x]).reshape(-1, 2, 4).sum(0) * x.size(0)
    return [y, x.topk(2).values, F.pad(x, (1, 2)), x[:, :, 1:].std(2), (x > 0).nonzero()]


def _fused() -> list[Any]:
    x, other = _data("x", [4, 3, 6, 6]), _data("other", [4, 3, 6, 6])
    weight, bias = (static.default_main_program().state(name, [3], "float32") for name in ("weight", "bias"))
    y, mean, invstd = _call(bn_act.bn_act, x, weight, bias, other, 1e-5, "relu")
    again = _call(bn_act.bn_act_recompute, x, weight, bias, other, mean, invstd, "relu")
    rest = (None, x, y, weight, bias, mean, invstd, "relu", [True, True, True])
    grads = _call(bn_act.bn_act_backward, other, *rest)
    written = _call(bn_act.bn_act_backward_, other * 1, *rest)
    return [y, again, *grads, *written]


def _elementwise() -> list[Any]:
    a, b = _data("a", [5, 8]), _data("b", [8])
    y, s = _call(add_act.add_act_keep, a, b, "gelu", 1.0)
    outputs = [_call(add_act.add_act, a, b, "tanh", 1.0), _call(add_act.act_add, a, b, "scale", 2.0)]
    outputs.append(_call(add_act.add_act_, a * 1, b, "relu", 1.0))
    outputs.append(_call(add_act.act_backward, y, a, s, "gelu", 1.0))
    outputs.append(_call(add_act.act_backward_, a * 1, None, s, "silu", 1.0))
    return [y, s, *outputs]


def _depthwise() -> list[Any]:
    x, weight = _data("x", [2, 3, 5, 5]), _data("weight", [3, 1, 3, 3])
    y = _call(relu_depthwise.relu_depthwise, x, weight, [1, 1], [1, 1])
    z = _call(relu_depthwise.depthwise, x, weight, [2, 1], [0, 1])
    grads = _call(relu_depthwise.relu_depthwise_backward, y, x, weight, [1, 1], [1, 1], [True, True])
    return [y, z, *grads]


def _updates() -> list[Any]:
    program = static.default_main_program()
    w, v, m, q = (program.state(name, [3, 4], "float32") for name in ("w", "v", "m", "q"))
    rate, step, g = (
        program.state("rate", [1], "float32"),
        program.state("step", [1], "float32"),
        _data("g", [3, 4]),
    )
    sgd, momentum, adam = (FUSED[update_op(name)] for name in ("sgd", "momentum", "adam"))
    _call(sgd, [w], [g], rate, [1.0], [0.1], [])
    _call(momentum, [w], [g], [v], rate, [1.0], 0.9, True, [0.1], [])
    _call(adam, [w], [g], [m], [q], [step], rate, [1.0], 0.9, 0.99, 1e-8, [])
    return [g * 2]


def _sequences() -> list[Any]:
    x, targets = _data("x", [5, 2, 4]), _data("targets", [2, 3], "int64")
    lengths, short = _data("lengths", [2], "int64"), _data("short", [2], "int64")
    w, u = _data("w", [4, 4]), _data("u", [4, 4])
    y, h, _ = _call(recurrent.recurrent, x, [x[:1]], [w, u], "rnn_tanh", False, False, False)
    loss = _call(ctc_loss.ctc_loss, y.log_softmax(-1), targets % 4, lengths % 6, short % 4, 0, 1, True)
    return [y, h, loss, torch.segment_reduce(x, "sum", lengths=lengths, axis=0)]


_MODELS: list[Callable[[], Any]] = [_classifier, _initial_values, _attention, _sizes, _updates, _sequences]
if kernels.unavailable() is None:
    _MODELS += [_fused, _elementwise, _depthwise]
