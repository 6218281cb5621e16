"""Every entry of torch's op_db that takes float32 on the CPU: forward and backward against eager mode."""

# SPDX-License-Identifier: Apache-2.0
import itertools
import operator
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from types import MethodDescriptorType, WrapperDescriptorType
from typing import Any

import torch
from torch.testing._internal import common_methods_invocations
from torch.utils._pytree import tree_leaves, tree_map_only

from argosy import static
from tests.torch_db.compare import (
    SEED,
    Copies,
    Feeds,
    Results,
    contiguous,
    differentiable,
    eager,
    first_difference,
    fresh,
    run,
    weights,
)
from tests.torch_db.outcome import EAGER_FAILS, EQUAL, SHAPE_ONLY, SKIPPED, WRONG, Outcome, classify

OPS = {op.full_name: op for op in common_methods_invocations.op_db if torch.float32 in op.dtypes}

UNINITIALISED = ("empty*", "new_empty*", "resize_*", "resize_as_*")
"""Their results are memory as it was found."""
UP_TO_SIGN = (
    "svd*",
    "linalg.svd*",
    "linalg.eig*",
    "qr",
    "linalg.qr",
    "geqrf",
    "pca_lowrank",
    "svd_lowrank",
    "linalg.eigh",
)
"""Vectors that are unique up to a sign or a phase: compared after `output_process_fn_grad` if the raw ones differ."""
LOOSE = {
    "nn.functional.conv*": 10.0,
    "linalg.*": 10.0,
    "cholesky*": 10.0,
    "lu*": 10.0,
    "nn.functional.gaussian*": 10.0,
}
"""Factors on the tolerances where the order of a sum, or a decomposition, differs."""


@dataclass(frozen=True)
class Sample:
    """One SampleInput."""

    name: str
    call: Callable[..., Any]
    tree: tuple[tuple[Any, ...], dict[str, Any]]
    """Arguments and keyword arguments."""
    process: Callable[[Any], Any]


def samples(name: str, limit: int) -> list[Sample]:
    """The first samples of an op; the same ones in every run."""
    op = OPS[name]
    torch.manual_seed(SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inputs = op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd)
        samples = list(itertools.islice(inputs, limit))
    return [
        Sample(name, as_written(op.op), ((s.input, *s.args), dict(s.kwargs)), s.output_process_fn_grad)
        for s in samples
    ]


def as_written(function: Callable[..., Any]) -> Callable[..., Any]:
    """The op as a user writes it: `x.cfloat()` for torch.Tensor.cfloat(x), `2 ^ x` for x.__rxor__(2)."""
    name = getattr(function, "__name__", "")
    if name.startswith("__r") and name.endswith("__"):
        plain = {"and": "and_", "or": "or_", "div": "truediv"}.get(name[3:-2], name[3:-2])
        binary = getattr(operator, plain)
        return lambda x, other: binary(other, x)
    if name == "__getitem__":
        return operator.getitem
    if isinstance(function, MethodDescriptorType | WrapperDescriptorType):
        return lambda x, *args, **kwargs: getattr(x, name)(*args, **kwargs)
    return function


# Torch's wrapper seeds the generator around a random op. A program draws when it runs, and is seeded there.
common_methods_invocations.wrapper_set_seed = lambda op, *args, **kwargs: as_written(op)(*args, **kwargs)


def check(sample: Sample, unknown: bool) -> Iterator[tuple[str, Outcome]]:
    """(forward or backward, outcome) of one sample."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = _eager(sample)
    except Exception as e:  # whatever eager mode raises, the case says nothing about Argosy
        yield "forward", Outcome(EAGER_FAILS, str(e).split("\n", 1)[0])
        return
    forward, backward = _in_program(sample, unknown, wanted)
    yield "forward", forward
    if wanted.gradients is not None:
        yield "backward", backward if forward.kind == EQUAL else Outcome(SKIPPED, "forward is not equal")


def _eager(sample: Sample) -> Results:
    copies = Copies()
    args, kwargs = copies.of(sample.tree)
    return eager(lambda: sample.call(*args, **kwargs), lambda: copies.leaves, sample.process)


def _in_program(sample: Sample, unknown: bool, wanted: Results) -> tuple[Outcome, Outcome]:
    """Forward and backward; both in one run, if both can be built."""
    with fresh():
        feeds = Feeds(unknown)
        try:
            torch.manual_seed(SEED)  # an op without tensors draws at once
            args, kwargs = feeds.of(sample.tree)
            out = sample.call(*args, **kwargs)
        except Exception as e:
            return classify(e, sample.name), Outcome(SKIPPED)
        gradients: list[Any] = []
        failed: Exception | None = None
        try:
            if wanted.gradients is not None:
                targets = differentiable(sample.process(out))
                seeds = [weights(target.detach()) for target in targets]
                gradients = (
                    static.gradients(targets, feeds.leaves, seeds) if targets else [None] * len(feeds.leaves)
                )
            values = run(out, feeds, gradients)
        except Exception as e:
            failed = e
        if failed is not None:
            try:
                values = run(out, feeds)
            except Exception as e:
                return classify(e, sample.name), Outcome(SKIPPED)
        count = len(tree_leaves(out))
        forward = _judged(sample, values[:count], wanted.outputs, out)
        if failed is not None:
            return forward, classify(failed, sample.name)
        backward = _judged_gradients(sample, values[count:], wanted.gradients or [])
        if unknown and forward == backward == Outcome(EQUAL):
            return _with_one_row(sample, feeds, out, gradients)
        return forward, backward


def _with_one_row(sample: Sample, feeds: Feeds, out: Any, gradients: list[Any]) -> tuple[Outcome, Outcome]:
    """The same program fed the first row of every tensor: sizes of 1 are where torch takes shortcuts.

    Equal also if eager mode, or the program, does not take one row.
    """
    rows = next((t.shape[0] for t in tree_leaves(sample.tree) if isinstance(t, torch.Tensor) and t.ndim), 1)
    if rows <= 1 or matches(sample.name, UNINITIALISED):
        return Outcome(EQUAL), Outcome(EQUAL)

    def first_row(tensor: torch.Tensor) -> torch.Tensor:
        is_cut = tensor.ndim and tensor.shape[0] == rows
        return contiguous(tensor[:1] if is_cut else tensor).requires_grad_(tensor.requires_grad)

    known = {id(t): first_row(t) for t in tree_leaves(sample.tree) if isinstance(t, torch.Tensor)}
    tree = tree_map_only(torch.Tensor, lambda t: known[id(t)], sample.tree)
    cut = Sample(sample.name, sample.call, tree, sample.process)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = _eager(cut)
        named = {v.name: contiguous(known[key]) for key, (_, v) in feeds.known.items()}
        values = run(out, Feeds(True, named), gradients)
    except Exception:
        return Outcome(EQUAL), Outcome(EQUAL)
    count = len(tree_leaves(out))
    results = first_difference(values[:count], wanted.outputs, "output of one row", loose(sample.name))
    slopes = first_difference(
        values[count:], wanted.gradients or [], "gradient of one row", loose(sample.name)
    )
    forward = Outcome(WRONG, results) if results and not is_random(cut) else Outcome(EQUAL)
    return forward, Outcome(WRONG, slopes) if slopes and not results else Outcome(EQUAL)


def _judged(sample: Sample, actual: list[Any], wanted: list[Any], out: Any) -> Outcome:
    difference = first_difference(actual, wanted, "output", loose(sample.name))
    if not difference:
        return Outcome(EQUAL)
    shapes = _shapes(actual) == _shapes(wanted)
    if shapes and (matches(sample.name, UNINITIALISED) or is_random(sample)):
        return Outcome(EQUAL, SHAPE_ONLY)
    if shapes and matches(sample.name, UP_TO_SIGN):
        structure = torch.utils._pytree.tree_structure(out)
        processed = [
            tree_leaves(sample.process(torch.utils._pytree.tree_unflatten(values, structure)))
            for values in (actual, wanted)
        ]
        if not first_difference(processed[0], processed[1], "output", loose(sample.name)):
            return Outcome(EQUAL)
    return Outcome(WRONG, difference)


def _judged_gradients(sample: Sample, actual: list[Any], wanted: list[Any]) -> Outcome:
    difference = first_difference(actual, wanted, "gradient", loose(sample.name))
    if difference and _shapes(actual) == _shapes(wanted) and is_random(sample):
        return Outcome(EQUAL, SHAPE_ONLY)
    return Outcome(WRONG, difference) if difference else Outcome(EQUAL)


def is_random(sample: Sample) -> bool:
    """True if eager mode gives other values from another seed."""
    runs = []
    for seed in (1, 2):
        args, kwargs = Copies().of(sample.tree)
        torch.manual_seed(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            runs.append(
                [
                    torch.clone(v.detach())
                    for v in tree_leaves(sample.call(*args, **kwargs))
                    if isinstance(v, torch.Tensor)
                ]
            )
    return bool(first_difference(runs[0], runs[1], "output"))


def _shapes(values: list[Any]) -> list[Any]:
    return [(v.shape, v.dtype) if isinstance(v, torch.Tensor) else type(v) for v in values]


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def loose(name: str) -> float:
    return next((factor for pattern, factor in LOOSE.items() if fnmatch(name, pattern)), 1.0)
