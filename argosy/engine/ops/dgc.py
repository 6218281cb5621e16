"""Deep Gradient Compression (Lin et al. 2018): sum only the largest elements of the gradients over the ranks.

    s = dgc_all_reduce([g, …], [w, …], [u, …], [v, …], step, …)
    r = wait(s)                                                     a flat sum, dense, equal on all ranks
    dgc_momentum([w, …], [bucket_view(r, v, 0), …], [u, …], step, …)

Before step `begin` the sum is an ordinary all-reduce, the update is that of momentum, and u is its velocity. From then
on each rank has a velocity u and a residual v of its own:

    u = mu · u + clip(g) + decay · w / ranks       momentum correction; at `begin` the velocity is divided by the ranks
    v = v + u                                      error feedback: what was not sent so far
    send the k largest |v|; there u = v = 0        momentum factor masking
    w = w - lr · sum over the ranks                the momentum is in the sum already

With Nesterov's u = mu · (u + g), v = v + u + g. The gradients are those of a loss over the number of ranks. A clip norm
is divided by sqrt(ranks), because it limits the gradient of one rank. k = elements · (1 - sparsity), where the list of
sparsities is passed through in `rampup` steps. A message has k indices (int32) and k values (float32) of every
parameter of the bucket; it is all-gathered, and every rank adds the messages up in the order of the ranks. Paddle's
ops are `dgc` and `dgc_momentum`.
"""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from argosy.engine.collective import Work, world
from argosy.engine.kernels.signatures import is_dense
from argosy.engine.ops import verifiers
from argosy.engine.ops.collectives import AsyncCollective
from argosy.engine.ops.gradient_buckets import slot
from argosy.engine.ops.op_spec import OpSpec, declare
from argosy.engine.ops.updates import FUSED, update_op

Tensors = Sequence[Tensor]
Numbers = Sequence[float]
_EXACT = 1 << 16
"""Up to so many elements the largest are found without a sample."""
_SAMPLE = 1 << 14
_SURPLUS = 1.5
"""How many times k elements the sampled threshold is meant to admit."""


# --- before the wait ----------------------------------------------------------------------------------


def _start(
    grads: Tensors,
    params: Tensors,
    velocities: Tensors,
    residuals: Tensors,
    step: Tensor,
    group: str,
    mu: float,
    nesterov: bool,
    l2: Numbers,
    l1: Numbers,
    clip_norm: Numbers,
    begin: int,
    rampup: int,
    sparsity: Numbers,
    what: str,
) -> AsyncCollective:
    ranks = world().group(group)
    since = int(step.item()) - begin
    sizes = [v.numel() for v in residuals]
    if since < 0:
        flat, first = residuals[0].new_empty(sum(sizes)), 0
        for grad, residual in zip(grads, residuals, strict=True):
            slot(flat, residual, first).copy_(grad)
            first += residual.numel()
        return AsyncCollective(flat, ranks.start_all_reduce(flat, what=what))
    counts = [num_sent(size, sparsity_at(since, rampup, sparsity)) for size in sizes]
    indices = torch.empty(sum(counts), dtype=torch.int32, device=residuals[0].device)
    values = residuals[0].new_empty(sum(counts))
    rows = zip(grads, params, velocities, residuals, l2, l1, clip_norm, counts, strict=True)
    first = sent = 0
    for grad, param, velocity, residual, decay2, decay1, clip, count in rows:
        if since == 0:  # so far the velocity of all ranks; Nesterov's u is mu times it
            velocity.mul_((mu if nesterov else 1.0) / ranks.size)
        terms = _terms(grad, param, decay2, decay1, clip, ranks.size)
        _accumulate(velocity, residual, terms, mu, nesterov)
        chosen = _take(residual, velocity, values[sent : sent + count])
        torch.add(chosen, first, out=chosen)
        indices[sent : sent + count].copy_(chosen)
        first, sent = first + residual.numel(), sent + count
    message = torch.cat([indices, values.view(torch.int32)])
    gathered = message.new_empty(ranks.size, message.numel())
    flat = residuals[0].new_zeros(sum(sizes))
    return AsyncCollective(flat, _Summed(ranks.start_all_gather(message, gathered, what), gathered, flat))


def sparsity_at(since: int, rampup: int, sparsity: Numbers) -> float:
    """The share of elements that is not sent, `since` steps after the first compressed one."""
    return sparsity[min(since * len(sparsity) // rampup, len(sparsity) - 1)]


def num_sent(size: int, sparsity: float) -> int:
    """How many elements of a parameter are sent; the same on all ranks."""
    return max(1, round(size * (1 - sparsity)))


def _terms(
    grad: Tensor, param: Tensor, l2: float, l1: float, clip_norm: float, ranks: int
) -> list[tuple[Tensor, float]]:
    """This rank's part of the gradient with its decay, as (tensor, factor)."""
    scale = 1.0
    if clip_norm:
        limit = clip_norm / math.sqrt(ranks)
        scale = limit / max(limit, torch.linalg.vector_norm(grad).item())
    terms = [(grad, scale)]
    if l2:
        terms.append((param, l2 / ranks))
    if l1:
        terms.append((param.sign(), l1 / ranks))
    return terms


def _accumulate(
    velocity: Tensor, residual: Tensor, terms: Sequence[tuple[Tensor, float]], mu: float, nesterov: bool
) -> None:
    if not nesterov:
        velocity.mul_(mu)
    for tensor, factor in terms:
        velocity.add_(tensor, alpha=factor)
        if nesterov:
            residual.add_(tensor, alpha=factor)
    if nesterov:
        velocity.mul_(mu)
    residual.add_(velocity)


def _take(residual: Tensor, velocity: Tensor, values: Tensor) -> Tensor:
    """Move the largest elements of the residual to `values`; returns their places in its memory, int64."""
    flat = residual.as_strided((residual.numel(),), (1,)) if is_dense(residual) else None
    if flat is None:
        raise ValueError(f"a residual of shape {list(residual.shape)} has gaps in memory; make it contiguous")
    chosen = largest(flat, len(values))
    torch.index_select(flat, 0, chosen, out=values)
    flat.index_fill_(0, chosen, 0.0)
    if velocity.stride() == residual.stride():
        velocity.as_strided((velocity.numel(),), (1,)).index_fill_(0, chosen, 0.0)
    else:
        is_sent = torch.zeros_like(flat, dtype=torch.bool).index_fill_(0, chosen, True)
        velocity.masked_fill_(slot(is_sent, residual, 0), 0.0)
    return chosen


def largest(flat: Tensor, count: int) -> Tensor:
    """The places of the `count` elements that are largest in absolute value, in no order.

    A threshold from a sample leaves few candidates, among which the search is exact. If it leaves too few, all elements
    are candidates.
    """
    magnitude = flat.abs()
    stride = flat.numel() // _SAMPLE
    if flat.numel() > _EXACT and 8 * count < flat.numel():
        sample = magnitude[::stride]
        rank = math.ceil(_SURPLUS * count * len(sample) / flat.numel()) + 8
        if rank < len(sample):
            threshold = torch.topk(sample, rank, sorted=False).values.min()
            candidates = (magnitude >= threshold).nonzero().squeeze(1)
            if count <= len(candidates) < flat.numel() // 4:
                largest_of = torch.topk(magnitude[candidates], count, sorted=False).indices
                return candidates[largest_of]
    return torch.topk(magnitude, count, sorted=False).indices


class _Summed(Work):
    """An all-gather of messages, which are then added to a flat tensor in the order of the ranks."""

    def __init__(self, work: Work, gathered: Tensor, flat: Tensor) -> None:
        self._work: Work | None = work
        self._gathered, self._flat = gathered, flat

    def wait(self) -> None:
        if self._work is None:
            return
        self._work.wait()
        self._work = None
        count = self._gathered.shape[1] // 2
        for message in self._gathered:
            self._flat.index_add_(0, message[:count], message[count:].view(self._flat.dtype))


def _fake_start(
    grads: Tensors, params: Tensors, velocities: Tensors, residuals: Tensors, *_: object
) -> Tensor:
    return residuals[0].new_empty(sum(v.numel() for v in residuals))


# --- after the wait -----------------------------------------------------------------------------------


def _update(
    params: Tensors,
    grads: Tensors,
    velocities: Tensors,
    step: Tensor,
    rate: Tensor,
    factor: Numbers,
    mu: float,
    nesterov: bool,
    l2: Numbers,
    l1: Numbers,
    clip_norm: Numbers,
    begin: int,
) -> None:
    if step.item() >= begin:
        lr = rate.item()
        for number in dict.fromkeys(factor):
            alike = [
                row for row, f in zip(zip(params, grads, strict=True), factor, strict=True) if f == number
            ]
            torch._foreach_add_([p for p, _ in alike], [g for _, g in alike], alpha=-lr * number)
        return
    rows = zip(grads, params, l1, clip_norm, strict=True)
    decayed = [_clipped_and_decayed(*row) for row in rows]
    fused = OpSpec.known[FUSED[update_op("momentum")]].kernel
    fused(params, decayed, velocities, rate, factor, mu, nesterov, l2, [])


def _clipped_and_decayed(grad: Tensor, param: Tensor, l1: float, clip_norm: float) -> Tensor:
    if clip_norm:
        grad = grad * (clip_norm / torch.linalg.vector_norm(grad).clamp(min=clip_norm))
    return torch.add(grad, param.sign(), alpha=l1) if l1 else grad


dgc_all_reduce = declare(
    "dgc_all_reduce(Tensor[] grad, Tensor[] param, Tensor(a!)[] velocity, Tensor(b!)[] residual, Tensor step, "
    "str group, float mu, bool nesterov, float[] l2, float[] l1, float[] clip_norm, int begin, int rampup, "
    "float[] sparsity, str what) -> Tensor",
    _start,
    _fake_start,
)
dgc_momentum = declare(
    "dgc_momentum(Tensor(a!)[] param, Tensor[] grad, Tensor(b!)[] velocity, Tensor step, Tensor rate, float[] factor, "
    "float mu, bool nesterov, float[] l2, float[] l1, float[] clip_norm, int begin) -> ()",
    _update,
    lambda *args: None,
)
SPEC = OpSpec(dgc_all_reduce, _start, is_collective=True, verify=verifiers.compressed)
UPDATE_SPEC = OpSpec(dgc_momentum, _update, verify=verifiers.fused_update(["velocity"]))
