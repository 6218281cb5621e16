"""Calls a function on feeds in a program and in eager mode, and says where the results differ.

    eager      copies of the tensors ──▶ outputs ──▶ torch.autograd.grad
    program    a feed per tensor ──────▶ outputs ──▶ static.gradients ──▶ one run

Outputs are weighted by position before they are differentiated, so that a gradient that went to the wrong
element shows. The weights are computed from the output itself: its sizes may be unknown.
"""

# SPDX-License-Identifier: Apache-2.0
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from argosy import static
from argosy.engine.ir import names

SEED = 7
Tree = Any
"""Nested tuples, lists and dicts."""

TOLERANCES: dict[torch.dtype, tuple[float, float]] = {
    torch.float64: (1e-6, 1e-8),
    torch.complex128: (1e-6, 1e-8),
    torch.float32: (1e-4, 1e-5),
    torch.complex64: (1e-4, 1e-5),
    torch.float16: (1e-2, 1e-3),
    torch.bfloat16: (5e-2, 1e-2),
}
"""dtype -> (rtol, atol); other dtypes must be equal."""


@contextmanager
def fresh() -> Iterator[None]:
    """Programs, names and a scope of the case's own; torch's warnings are silenced."""
    with (
        warnings.catch_warnings(),
        static.program_guard(static.Program("main"), static.Program("startup")),
        names.guard(),
        static.scope_guard(static.Scope()),
    ):
        warnings.simplefilter("ignore")
        yield


@dataclass
class Copies:
    """Contiguous copies of tensors, for eager mode; a tensor that occurs twice is copied once."""

    leaves: list[Tensor] = field(default_factory=list)
    """Those that require a gradient."""
    _known: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def of(self, tree: Tree) -> Tree:
        return tree_map_only(Tensor, self._copy, tree)

    def _copy(self, tensor: Tensor) -> Tensor:
        if not is_feedable(tensor):
            return tensor
        if id(tensor) not in self._known:
            copy = contiguous(tensor).requires_grad_(tensor.requires_grad)
            self._known[id(tensor)] = (tensor, copy)
            if copy.requires_grad:
                self.leaves.append(copy)
        return self._known[id(tensor)][1]


@dataclass
class Feeds:
    """Feeds of the current program in the place of tensors."""

    unknown: bool
    """True: dimension 0 of every feed is None."""
    values: dict[str, Tensor] = field(default_factory=dict)
    leaves: list[static.Variable] = field(default_factory=list)
    """Those to differentiate for, in the order of `Copies.leaves`."""
    known: dict[int, tuple[Tensor, static.Variable]] = field(default_factory=dict)
    """id of a tensor -> the tensor and its feed."""

    def of(self, tree: Tree) -> Tree:
        return tree_map_only(Tensor, self._feed, tree)

    def _feed(self, tensor: Tensor) -> Any:
        if not is_feedable(tensor):
            return tensor
        if id(tensor) not in self.known:
            name = f"x{len(self.values)}"
            # static.data rejects size 0, which only a feed of unknown size can have.
            shape = [None if s == 0 or (d == 0 and self.unknown) else s for d, s in enumerate(tensor.shape)]
            variable = static.data(name, shape, tensor.dtype)
            self.values[name] = contiguous(tensor)
            if tensor.requires_grad:
                variable.stop_gradient = False
                self.leaves.append(variable)
            self.known[id(tensor)] = (tensor, variable)
        return self.known[id(tensor)][1]


def forms(tree: Tree, has_batch: bool = True) -> dict[str, bool]:
    """form -> whether dimension 0 of every feed is unknown, which needs a batch there.

    Size 0 can only be fed to an unknown size. So a sample with an empty tensor has one form, which is neither.
    """
    if any(isinstance(leaf, Tensor) and is_feedable(leaf) and 0 in leaf.shape for leaf in tree_leaves(tree)):
        return {"empty": False}
    return {"concrete": False, "unknown": True} if has_batch else {"concrete": False}


def is_feedable(tensor: Tensor) -> bool:
    """Feeds are dense; a sparse tensor stays a constant of the program."""
    return tensor.layout is torch.strided and not tensor.is_quantized


def contiguous(tensor: Tensor) -> Tensor:
    return tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def differentiable(outputs: Tree) -> list[Any]:
    """The tensors, or the Variables, of a result that have a gradient."""
    values = [(v, v.value if isinstance(v, static.Variable) else v) for v in tree_leaves(outputs)]
    return [v for v, value in values if isinstance(value, Tensor) and value.requires_grad]


def weights(output: Any) -> Any:
    """Fixed irregular numbers of the output's shape and dtype; the same for a Variable and a tensor."""
    index = ones = torch.ones_like(output)
    for dim in range(output.ndim):
        index = index + torch.cumsum(ones, dim) * (2.3 + 1.7 * dim)
    return torch.cos(index)


@dataclass(frozen=True)
class Results:
    """What eager mode gives."""

    outputs: list[Any]
    gradients: list[Tensor | None] | None
    """None: nothing to differentiate, or eager mode cannot."""


def eager(
    call: Callable[[], Tree],
    inputs: Callable[[], Sequence[Tensor]],
    process: Callable[[Tree], Tree] = lambda out: out,
) -> Results:
    """Outputs, and gradients of the processed outputs for `inputs()`; raises what the call raises."""
    torch.manual_seed(SEED)
    out = call()
    outputs = [snapshot(leaf) for leaf in tree_leaves(out)]
    leaves = list(inputs())
    try:
        targets = differentiable(process(out))
        if not targets or not leaves:
            return Results(outputs, None)
        seeds = [weights(target.detach()) for target in targets]
        grads = torch.autograd.grad(targets, leaves, seeds, allow_unused=True)
    except (RuntimeError, NotImplementedError):
        return Results(outputs, None)
    return Results(outputs, [None if g is None else snapshot(g) for g in grads])


def snapshot(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def run(outputs: Tree, feeds: Feeds, more: Sequence[Any] = (), program: Any = None) -> list[Any]:
    """The leaves of `outputs` and of `more`, the Variables among them with the values of one run."""
    leaves = [*tree_leaves(outputs), *more]
    fetched = [leaf for leaf in leaves if isinstance(leaf, static.Variable)]
    executor = static.Executor()
    torch.manual_seed(SEED)
    values = iter(executor.run(program, feed=feeds.values, fetch_list=fetched, return_numpy=False))
    return [next(values) if isinstance(leaf, static.Variable) else leaf for leaf in leaves]


def first_difference(actual: Sequence[Any], wanted: Sequence[Any], what: str, loose: float = 1.0) -> str:
    """A sentence about the first value that differs; "" if none does. `loose` is a factor on the tolerances."""
    if len(actual) != len(wanted):
        return f"{len(actual)} {what}s where eager has {len(wanted)}"
    for place, pair in enumerate(zip(actual, wanted, strict=True)):
        if difference := _difference(*pair, loose):
            return f"{what} {place}: {difference}"
    return ""


def _difference(actual: Any, wanted: Any, loose: float) -> str:
    if isinstance(actual, Tensor) and isinstance(wanted, Tensor):
        return _of_tensors(actual.detach(), wanted.detach(), loose)
    if actual is None or wanted is None:  # no gradient is a gradient of zeros
        other = wanted if actual is None else actual
        is_zero = other is None or (isinstance(other, Tensor) and not bool(other.any()))
        return "" if is_zero else f"{_kind_of(actual)} where eager has {_kind_of(wanted)}"
    if isinstance(actual, Tensor) or isinstance(wanted, Tensor) or type(actual) is not type(wanted):
        return f"{_kind_of(actual)} where eager has {_kind_of(wanted)}"
    is_nan = isinstance(actual, float) and math.isnan(actual)
    return "" if actual == wanted or is_nan else f"{actual} where eager has {wanted}"


def _kind_of(value: Any) -> str:
    return "a tensor" if isinstance(value, Tensor) else type(value).__name__


def _of_tensors(actual: Tensor, wanted: Tensor, loose: float) -> str:
    if actual.dtype != wanted.dtype:
        return f"dtype {actual.dtype} where eager has {wanted.dtype}"
    if actual.shape != wanted.shape:
        return f"shape {list(actual.shape)} where eager has {list(wanted.shape)}"
    if actual.layout != wanted.layout:
        return f"layout {actual.layout} where eager has {wanted.layout}"
    if actual.layout != torch.strided:
        actual, wanted = actual.to_dense(), wanted.to_dense()
    if actual.dtype is torch.complex32:  # no kernel compares them
        actual, wanted = actual.to(torch.complex64), wanted.to(torch.complex64)
    if actual.dtype not in TOLERANCES:
        return "" if torch.equal(actual, wanted) else "values differ"
    rtol, atol = TOLERANCES[actual.dtype]
    size = wanted.abs()[wanted.isfinite()]
    scale = max(1.0, float(size.max())) if size.numel() else 1.0
    if torch.allclose(actual, wanted, rtol * loose, atol * loose * scale, equal_nan=True):
        return ""
    gap = (actual - wanted).abs().nan_to_num(nan=float("inf")).max()
    return f"values differ by up to {float(gap):.2g} of {scale:.2g}"
