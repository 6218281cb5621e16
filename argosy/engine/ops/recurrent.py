"""recurrent: one layer of an LSTM, GRU or RNN over a whole sequence, in one or both directions.

torch's functions are composed of an op per time step, so recording them needs the number of steps, and the graph grows
with it. This op calls them at run time: the number of steps may be unknown while the program is built.

    y, h, c = recurrent(x, [h0, c0], [w_ih, w_hh, b_ih, b_hh])
    dx, dh0, dc0, dw_ih, … = recurrent_backward(dy, dh, dc, x, [h0, c0], [w_ih, w_hh, …])

Backward reruns the layer and differentiates it with torch's autograd; forward saves only its inputs.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from argosy.engine.ops.autograd import gradients_by_rerun, not_differentiable_twice, register_autograd
from argosy.engine.ops.op_spec import OpSpec, declare
from argosy.engine.ops.verifiers import one_of

FUNCTIONS: dict[str, Callable[..., tuple[Tensor, ...]]] = {
    "lstm": torch.lstm,
    "gru": torch.gru,
    "rnn_tanh": torch.rnn_tanh,
    "rnn_relu": torch.rnn_relu,
}
"""Kind of layer -> torch's function."""


def _kernel(
    x: Tensor,
    hidden: Sequence[Tensor],
    weights: Sequence[Tensor],
    kind: str,
    has_biases: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs, last hidden state, and last cell state (empty unless it is an LSTM)."""
    first = hidden if kind == "lstm" else hidden[0]
    y, *last = FUNCTIONS[kind](x, first, list(weights), has_biases, 1, 0.0, False, bidirectional, batch_first)
    cell = last[1] if kind == "lstm" else x.new_empty(0)
    return y.contiguous(), last[0], cell


def _fake(
    x: Tensor,
    hidden: Sequence[Tensor],
    weights: Sequence[Tensor],
    kind: str,
    has_biases: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    h = hidden[0]
    y = x.new_empty([*x.shape[:-1], h.shape[-1] * (2 if bidirectional else 1)])
    return y, torch.empty_like(h), torch.empty_like(hidden[1]) if kind == "lstm" else x.new_empty(0)


def _backward_kernel(
    dy: Tensor | None,
    dh: Tensor | None,
    dc: Tensor | None,
    x: Tensor,
    hidden: Sequence[Tensor],
    weights: Sequence[Tensor],
    kind: str,
    has_biases: bool,
    bidirectional: bool,
    batch_first: bool,
) -> list[Tensor]:
    """The gradients of x, of the initial states, and of the weights."""
    count = len(hidden)

    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        states, parameters = tensors[1 : 1 + count], tensors[1 + count :]
        return _kernel(tensors[0], states, parameters, kind, has_biases, bidirectional, batch_first)

    return gradients_by_rerun(run, [x, *hidden, *weights], [dy, dh, dc])


def _backward_fake(
    dy: Tensor | None,
    dh: Tensor | None,
    dc: Tensor | None,
    x: Tensor,
    hidden: Sequence[Tensor],
    weights: Sequence[Tensor],
    *_: Any,
) -> list[Tensor]:
    return [t.new_empty(t.shape) for t in (x, *hidden, *weights)]


_ARGUMENTS = (
    "Tensor x, Tensor[] hidden, Tensor[] weights, "
    "str kind, bool has_biases, bool bidirectional, bool batch_first"
)
recurrent = declare(f"recurrent({_ARGUMENTS}) -> (Tensor, Tensor, Tensor)", _kernel, _fake)
recurrent_backward = declare(
    f"recurrent_backward(Tensor? dy, Tensor? dh, Tensor? dc, {_ARGUMENTS}) -> Tensor[]",
    _backward_kernel,
    _backward_fake,
)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, hidden, weights, *ctx.options = inputs
    ctx.num_hidden = len(hidden)
    ctx.save_for_backward(x, *hidden, *weights)


def _gradient(ctx: Any, dy: Tensor | None, dh: Tensor | None, dc: Tensor | None) -> tuple[Any, ...]:
    x, *rest = ctx.saved_tensors
    hidden, weights = rest[: ctx.num_hidden], rest[ctx.num_hidden :]
    gradients = recurrent_backward(
        dy, dh, dc if ctx.options[0] == "lstm" else None, x, hidden, weights, *ctx.options
    )
    split = 1 + ctx.num_hidden
    return gradients[0], gradients[1:split], gradients[split:], *[None] * len(ctx.options)


register_autograd(recurrent, _save, _gradient)
register_autograd(
    recurrent_backward, lambda ctx, inputs, output: None, not_differentiable_twice("recurrent layers")
)
SPEC = OpSpec(recurrent, _kernel, verify=one_of("kind", tuple(FUNCTIONS)))
BACKWARD_SPEC = OpSpec(recurrent_backward, _backward_kernel)
