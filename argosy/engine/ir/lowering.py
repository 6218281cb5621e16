"""Lowerings of torch functions that are recorded in another form than torch's own decomposition.

F.dropout       native_dropout, one node with a mask, which `clone(for_test=True)` can remove
F.batch_norm    native_batch_norm on the batch, and one node that updates the running statistics:

                    y, mean, invstd = native_batch_norm(x)
                    update_running_stats(running_mean, running_var, mean, invstd)

                so that every update of the scope is a separate node.

torch.lstm, …   one node per layer (`ops/recurrent.py`), and dropout between them
F.ctc_loss      one node (`ops/ctc_loss.py`)
torch.cov, F.gaussian_nll_loss    the checks of their arguments are nodes (`ops/checked.py`)
F.embedding     sparse=True has a dense gradient; programs have no sparse tensors
"""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn._reduction import get_enum
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from argosy.engine.errors import ProgramError
from argosy.engine.ops.batch_norm import update_running_stats
from argosy.engine.ops.checked import checked
from argosy.engine.ops.ctc_loss import ctc_loss as ctc_loss_op
from argosy.engine.ops.memory_format import memory_format_of
from argosy.engine.ops.recurrent import FUNCTIONS, recurrent


def dropout(x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    """x with each element zero with probability p, the others scaled by 1 / (1 - p)."""
    if not training or p == 0.0:
        return x
    out = torch.native_dropout(x, p, True)[0]
    return x.copy_(out) if inplace else out


def native_batch_norm(x: torch.Tensor, *args: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """torch's op under its own name; the python dispatcher would decompose it into another op for each case.

    A transposed input is copied: torch's kernel returns contiguous results for it, and its fake kernel does not.
    """
    memory_format = memory_format_of(x)
    if not x.is_contiguous(memory_format=memory_format):
        x = x.contiguous(memory_format=memory_format)
    with torch._C._DisablePythonDispatcher():
        out: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = torch.native_batch_norm(x, *args)
        return out


def batch_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    unbiased: bool = True,
) -> torch.Tensor:
    """Batch normalisation; `momentum` is torch's (the weight of the new batch), as is `unbiased`."""
    if not training:
        return native_batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps)[0]
    out, mean, invstd = native_batch_norm(input, weight, bias, None, None, True, momentum, eps)
    if running_mean is not None and running_var is not None:
        with torch.no_grad():
            count = input.numel() // input.shape[1]
            update_running_stats(
                running_mean, running_var, mean, invstd, momentum, eps, count if unbiased else 0
            )
    return out


def _torch_batch_norm(input: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """F.batch_norm, which rejects a single value per channel in training; Paddle's layers accept it."""
    training = kwargs.get("training", args[4] if len(args) > 4 else False)
    if training and input.numel() == input.shape[1]:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {list(input.shape)}"
        )
    return batch_norm(input, *args, **kwargs)


def _recurrent(kind: str) -> Callable[..., Any]:
    """torch.lstm, torch.gru, … for a padded batch: layer by layer, with dropout in between."""

    def function(
        x: torch.Tensor,
        first: Any,
        weights: Sequence[torch.Tensor],
        has_biases: Any,
        num_layers: int,
        rate: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[torch.Tensor, ...]:
        if not isinstance(has_biases, bool):
            raise ProgramError(f"{kind} on packed data cannot be recorded; call it on a padded batch")
        states = list(first) if kind == "lstm" else [first]
        directions = 2 if bidirectional else 1
        count = len(weights) // num_layers
        last: list[tuple[torch.Tensor, ...]] = []
        for layer in range(num_layers):
            hidden = (
                [s[layer * directions : (layer + 1) * directions] for s in states]
                if num_layers > 1
                else states
            )
            layer_weights = list(weights[layer * count : (layer + 1) * count])
            x, *final = recurrent(x, hidden, layer_weights, kind, has_biases, bidirectional, batch_first)
            last.append(tuple(final))
            if layer < num_layers - 1:
                x = dropout(x, rate, train)
        final_states = [torch.cat(parts) if num_layers > 1 else parts[0] for parts in zip(*last, strict=True)]
        return (x, *final_states[: len(states)])

    return function


def _ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: Any = "mean",
    zero_infinity: bool = False,
) -> torch.Tensor:
    number = reduction if isinstance(reduction, int) else get_enum(reduction)
    lengths = [
        length if isinstance(length, torch.Tensor) else torch.tensor(length, dtype=torch.int64)
        for length in (input_lengths, target_lengths)
    ]
    out: torch.Tensor = ctc_loss_op(log_probs, targets, *lengths, blank, number, zero_infinity)
    return out


def _gaussian_nll_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    var: torch.Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> torch.Tensor:
    """torch's function checks for negative variances in Python; here the check is a node of the step."""
    if isinstance(var, float):
        return F.gaussian_nll_loss(input, target, var, full, eps, reduction)
    variance: torch.Tensor = checked(var, ~(var < 0).any(), "gaussian_nll_loss: var has negative entries")
    if variance.ndim == input.ndim - 1:
        variance = variance.unsqueeze(-1)
    if [size for size, wanted in zip(variance.shape, input.shape, strict=True) if size != wanted] not in (
        [],
        [1],
    ):
        raise ValueError("var is of incorrect size")
    with torch.no_grad():
        floor = (eps - variance).clamp(min=0)
    variance = variance + floor  # at least eps, with the gradient of the variance everywhere, as in torch
    loss = 0.5 * (variance.log() + (input - target) ** 2 / variance)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid")
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def _cov(
    x: torch.Tensor,
    correction: int = 1,
    fweights: torch.Tensor | None = None,
    aweights: torch.Tensor | None = None,
) -> torch.Tensor:
    """torch.cov checks for negative weights in Python; here the check is a node of the step."""
    rows = x.unsqueeze(0) if x.ndim < 2 else x
    weights = None
    for name, value in (("fweights", fweights), ("aweights", aweights)):
        if value is not None:
            factor = checked(value, ~(value < 0).any(), f"cov: {name} cannot be negative")
            weights = factor if weights is None else weights * factor
    if weights is None:
        total: Any = rows.shape[1]
        mean, norm = rows.sum(1, keepdim=True) / total, total - correction
    else:
        total = weights.sum()
        mean = (rows * weights).sum(1, keepdim=True) / total
        norm = total - correction
        if aweights is not None and correction != 0:
            norm = total - correction * (weights * aweights).sum() / total
        norm = norm.clamp(min=0)
    centred = rows - mean
    weighted = centred if weights is None else centred * weights
    product: torch.Tensor = centred @ weighted.mT.conj()
    covariance: torch.Tensor = product / norm
    return covariance.squeeze()


def _corrcoef(x: torch.Tensor) -> torch.Tensor:
    """torch.corrcoef."""
    covariance = _cov(x)
    if covariance.ndim == 0:
        return covariance / covariance
    deviation = covariance.diagonal().sqrt()
    correlation = covariance / deviation.unsqueeze(-1) / deviation.unsqueeze(0)
    if correlation.is_complex():
        return torch.complex(correlation.real.clamp(-1, 1), correlation.imag.clamp(-1, 1))
    return correlation.clamp(-1, 1)


def _dense(function: Callable[..., Any], index: int) -> Callable[..., Any]:
    """The function with a dense gradient; `index` is the position of its argument `sparse`."""

    def dense(*args: Any, **kwargs: Any) -> Any:
        if len(args) > index:
            args = (*args[:index], False, *args[index + 1 :])
        return function(*args, **{key: value for key, value in kwargs.items() if key != "sparse"})

    return dense


def _set_data(x: torch.Tensor, value: torch.Tensor) -> None:
    raise ProgramError(
        "x.data = y replaces the storage of a tensor, which cannot be recorded; write into it: x.data.copy_(y)"
    )


_LOWERED: dict[Callable[..., Any], Callable[..., Any]] = {
    F.dropout: dropout,
    torch.Tensor.data.__get__: torch.Tensor.detach,  # type: ignore[attr-defined]  # a descriptor
    torch.Tensor.data.__set__: _set_data,  # type: ignore[attr-defined]
    F.batch_norm: _torch_batch_norm,
    F.ctc_loss: _ctc_loss,
    torch.cov: _cov,
    torch.Tensor.cov: _cov,
    torch.corrcoef: _corrcoef,
    torch.Tensor.corrcoef: _corrcoef,
    F.gaussian_nll_loss: _gaussian_nll_loss,
    torch.ctc_loss: _ctc_loss,
    F.embedding: _dense(F.embedding, 6),
    F.embedding_bag: _dense(F.embedding_bag, 7),
    torch.embedding: _dense(torch.embedding, 4),
    torch.embedding_bag: _dense(torch.embedding_bag, 5),
    **{function: _recurrent(kind) for kind, function in FUNCTIONS.items()},
}


class Lowering(TorchFunctionMode):
    """Replaces torch's functions by the lowerings above.

    Calls inside of torch's own Python functions do not pass here, so F.embedding is listed besides torch.embedding.

    Real tensors that are variables, or require gradients, become the program's variables: a weight of another module,
    or those that torch.utils.checkpoint reads when it recomputes activations in backward.
    """

    def __init__(self, variable_of: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self._variable_of = variable_of

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if any(map(_has_real_tensor, args)) and not _is_private(func):
            args = tree_map_only(_REAL, self._variable_of, args)
        if kwargs and any(map(_has_real_tensor, kwargs.values())):
            kwargs = tree_map_only(_REAL, self._variable_of, kwargs)
        return _LOWERED.get(func, func)(*args, **(kwargs or {}))


def _is_private(func: Callable[..., Any]) -> bool:
    """True for attributes such as tensor._backward_hooks."""
    return getattr(func, "__name__", "") == "__get__" and func.__self__.__name__.startswith("_")  # type: ignore[attr-defined]


_REAL = (torch.nn.Parameter, torch.Tensor)


def _has_real_tensor(value: Any) -> bool:
    kind = type(value)
    return kind in _REAL or (kind in (list, tuple) and any(map(_has_real_tensor, value)))
