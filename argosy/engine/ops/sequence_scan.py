"""sequence_scan: a recurrence over the rows of each sequence: LSTM, projected LSTM, GRU, the forward pass of a CRF.

    sequences  a0 a1 a2      step 0: a0 b0 c0      step 1: a1 b1      step 2: a2
               b0 b1
               c0

A step computes the rows of all sequences that are long enough, longest sequence first, so that no row is padded. The
number of steps is known only at run time. Backward reruns the recurrence and differentiates it with torch's autograd.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from argosy.engine.ops.autograd import gradients_by_rerun, not_differentiable_twice, register_autograd
from argosy.engine.ops.op_spec import OpSpec, declare
from argosy.engine.ops.verifiers import one_of

Functions = list[Callable[[Tensor], Tensor]]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "identity": lambda x: x,
}


def _lstm(
    x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor], act: Functions, clips: Sequence[float]
) -> tuple[Tensor, ...]:
    """Gates in Paddle's order: candidate, input, forget, output; a bias of 7 · H has the weights of peepholes."""
    hidden, cell = states
    size = cell.shape[1]
    gates = x + hidden @ weights[0] + weights[1][: 4 * size]
    candidate, inputs, forget, output = gates.split(size, 1)
    peep = weights[1][4 * size :].split(size) if len(weights[1]) > 4 * size else None
    if peep is not None:
        inputs, forget = inputs + peep[0] * cell, forget + peep[1] * cell
    new = act[0](forget) * cell + act[0](inputs) * act[2](candidate)
    new = new.clamp(-clips[0], clips[0]) if clips[0] > 0 else new
    output = act[0](output if peep is None else output + peep[2] * new)
    hidden = output * act[1](new)
    if len(weights) > 2:
        hidden = act[3](hidden @ weights[2])
        hidden = hidden.clamp(-clips[1], clips[1]) if clips[1] > 0 else hidden
    return hidden, new


def _gru(
    x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor], act: Functions, clips: Sequence[float]
) -> tuple[Tensor, ...]:
    """Gates in Paddle's order: update, reset, candidate; clips[0] is 1 in the mode of the original paper."""
    (hidden,) = states
    size = hidden.shape[1]
    biased = x + weights[1]
    gates = act[0](biased[:, : 2 * size] + hidden @ weights[0][:, : 2 * size])
    update, reset = gates.split(size, 1)
    candidate = act[1](biased[:, 2 * size :] + (reset * hidden) @ weights[0][:, 2 * size :])
    keep = update if clips[0] else 1 - update
    return (keep * hidden + (1 - keep) * candidate,)


def _crf(
    x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor], act: Functions, clips: Sequence[float]
) -> tuple[Tensor, ...]:
    """The logarithm of the sum over all paths to each tag; row 0 of the weight are the scores of first tags."""
    transition = weights[0]
    if not states:
        return (x + transition[0],)
    return (x + torch.logsumexp(states[0].unsqueeze(2) + transition[2:], 1),)


CELLS = {"lstm": _lstm, "gru": _gru, "crf": _crf}


def steps_of(lengths: Tensor, rows: int, is_reverse: bool = False) -> tuple[Tensor, Tensor, list[int]]:
    """The order of the sequences, the indices of rows step by step, and the number of rows of each step."""
    if bool((lengths < 0).any()) or int(lengths.sum()) != rows:
        raise ValueError(f"the lengths sum up to {int(lengths.sum())}, and there are {rows} rows")
    descending, order = lengths.sort(descending=True, stable=True)
    longest = int(descending[0]) if len(lengths) else 0
    is_active = torch.arange(longest, device=lengths.device).unsqueeze(1) < descending
    step, sequence = is_active.nonzero(as_tuple=True)
    starts = (lengths.cumsum(0) - lengths)[order]
    index = starts[sequence] + (descending[sequence] - 1 - step if is_reverse else step)
    return order, index, is_active.sum(1).tolist()


def _kernel(
    x: Tensor,
    lengths: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    kind: str,
    activations: Sequence[str],
    clips: Sequence[float],
    is_reverse: bool,
) -> tuple[Tensor, Tensor]:
    """The first state after each row, and the second one (empty if there is none)."""
    order, index, counts = steps_of(lengths, len(x), is_reverse)
    functions = [ACTIVATIONS[name] for name in activations]
    current: Sequence[Tensor] = [state.index_select(0, order) for state in states]
    outputs: list[Sequence[Tensor]] = []
    for rows, count in zip(x.index_select(0, index).split(counts), counts, strict=True):
        current = CELLS[kind](rows, [state[:count] for state in current], weights, functions, clips)
        outputs.append(current)
    back = torch.empty_like(index).scatter_(0, index, torch.arange(len(index), device=index.device))
    shapes = [t.shape for t in _fake(x, lengths, states, weights, kind)]
    results = [
        torch.cat([step[i] for step in outputs]).index_select(0, back)
        if outputs and len(outputs[0]) > i
        else x.new_empty(shape)
        for i, shape in enumerate(shapes)
    ]
    return results[0], results[1]


def _fake(
    x: Tensor, lengths: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor], kind: str, *_: Any
) -> tuple[Tensor, Tensor]:
    widths = [state.shape[1] for state in states] or [x.shape[1]]
    second = (x.shape[0], widths[1]) if len(widths) > 1 else (0,)
    return x.new_empty(x.shape[0], widths[0]), x.new_empty(second)


def _backward_kernel(
    dy: Tensor | None,
    dc: Tensor | None,
    x: Tensor,
    lengths: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    *options: Any,
) -> list[Tensor]:
    """The gradients of x, of the initial states, and of the weights."""
    count = len(states)

    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        return _kernel(tensors[0], lengths, tensors[1 : 1 + count], tensors[1 + count :], *options)

    if len(x) == 0:  # no step depends on anything
        return [torch.zeros_like(t) for t in (x, *states, *weights)]
    return gradients_by_rerun(run, [x, *states, *weights], [dy, dc if count > 1 else None])


def _backward_fake(
    dy: Tensor | None,
    dc: Tensor | None,
    x: Tensor,
    lengths: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    *_: Any,
) -> list[Tensor]:
    return [t.new_empty(t.shape) for t in (x, *states, *weights)]


_ARGUMENTS = (
    "Tensor x, Tensor lengths, Tensor[] states, Tensor[] weights, str kind, str[] activations, float[] clips, "
    "bool is_reverse"
)
sequence_scan = declare(f"sequence_scan({_ARGUMENTS}) -> (Tensor, Tensor)", _kernel, _fake)
sequence_scan_backward = declare(
    f"sequence_scan_backward(Tensor? dy, Tensor? dc, {_ARGUMENTS}) -> Tensor[]",
    _backward_kernel,
    _backward_fake,
)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, lengths, states, weights, *ctx.options = inputs
    ctx.num_states = len(states)
    ctx.save_for_backward(x, lengths, *states, *weights)


def _gradient(ctx: Any, dy: Tensor | None, dc: Tensor | None) -> tuple[Any, ...]:
    x, lengths, *rest = ctx.saved_tensors
    states, weights = rest[: ctx.num_states], rest[ctx.num_states :]
    gradients = sequence_scan_backward(dy, dc, x, lengths, states, weights, *ctx.options)
    split = 1 + ctx.num_states
    return gradients[0], None, gradients[1:split], gradients[split:], *[None] * len(ctx.options)


register_autograd(sequence_scan, _save, _gradient)
register_autograd(
    sequence_scan_backward, lambda ctx, inputs, output: None, not_differentiable_twice("recurrent layers")
)
SPEC = OpSpec(sequence_scan, _kernel, verify=one_of("kind", tuple(CELLS)))
BACKWARD_SPEC = OpSpec(sequence_scan_backward, _backward_kernel, verify=one_of("kind", tuple(CELLS)))
