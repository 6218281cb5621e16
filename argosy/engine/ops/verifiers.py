"""Verifiers of ops: what the arguments of a node must fulfil beyond the types of the schema.

A verifier takes the node's arguments by name, tensors as fake tensors, and returns what is wrong with them, or "".
`ir/verify.py` calls it after every pass. Sizes that depend on the feeds are not compared: that would add assumptions.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

Arguments = Mapping[str, Any]
Verifier = Callable[[Arguments], str]


def update(slots: Sequence[str]) -> Verifier:
    """A verifier of an update of the optimizer: tensors of one shape, none of which aliases what is written."""
    written = ("param", *slots, "master")

    def verify(arguments: Arguments) -> str:
        tensors = {name: arguments[name] for name in (*written, "grad") if arguments.get(name) is not None}
        return _row_problem(tensors) or _rate(arguments["rate"])

    return verify


def fused_update(slots: Sequence[str]) -> Verifier:
    """The same for lists, with an element for each parameter; `master` may be empty."""
    written = ("param", *slots, "master")

    def verify(arguments: Arguments) -> str:
        count = len(arguments["param"])
        lists = {name: value for name, value in arguments.items() if isinstance(value, list | tuple)}
        for name, values in lists.items():
            if len(values) != count and not (name == "master" and not values):
                return f"{name} has {len(values)} elements, and param has {count}: they must have as many"
        for index in range(count):
            if problem := _row_problem(
                {name: lists[name][index] for name in (*written, "grad") if lists.get(name)}
            ):
                return f"{problem} (element {index})"
        return _rate(arguments["rate"])

    return verify


def compressed(arguments: Arguments) -> str:
    """dgc_all_reduce: lists with an element for each parameter, float32 tensors of one shape, distinct states."""
    count = len(arguments["param"])
    for name in ("grad", "velocity", "residual", "l2", "l1", "clip_norm"):
        if len(arguments[name]) != count:
            return (
                f"{name} has {len(arguments[name])} elements, and param has {count}: they must have as many"
            )
    names = ("param", "grad", "velocity", "residual")
    for row in zip(*(arguments[name] for name in names), strict=True):
        tensors = dict(zip(names, row, strict=True))
        if any(value.dtype != torch.float32 for value in row):
            return f"the tensors are {', '.join(map(_kind, row))}: they must be float32"
        if problem := _row_problem(tensors):
            return problem
    sparsity, rampup = arguments["sparsity"], arguments["rampup"]
    if not count or not sparsity or not all(0 <= level < 1 for level in sparsity) or rampup < 1:
        return (
            f"{count} parameters, sparsity {list(sparsity)}, rampup {rampup}: there must be a parameter and a "
            "sparsity, from 0 to below 1, and rampup must be at least 1"
        )
    return ""


def _row_problem(tensors: Mapping[str, Tensor]) -> str:
    """What is wrong with the tensors of one parameter, all of which but `grad` are written."""
    param = tensors["param"]
    for name, value in tensors.items():
        is_count = name != "grad" and _is_single(value)
        if not _same_shape(value, param) and not is_count:
            return f"{name} is {_kind(value)}, and param is {_kind(param)}: they must have the same shape"
    return _distinct(tensors, [name for name in tensors if name != "grad"])


def _rate(rate: Tensor) -> str:
    return "" if _is_single(rate) else f"rate is {_kind(rate)}: it must have one element"


def slot_fits(arguments: Arguments) -> str:
    """copy_into_bucket, bucket_view: the slot is inside of the flat tensor. A copy converts to its dtype."""
    flat, like = list(arguments.values())[:2]
    return _fits(flat, arguments["first"], like.numel(), flat.dtype)


def product_fits(arguments: Arguments) -> str:
    """mm_into_bucket: two matrices whose product has its slot inside of the buffer."""
    a, b = arguments["a"], arguments["b"]
    if a.ndim != 2 or b.ndim != 2 or not _same_size(a.shape[1], b.shape[0]) or a.dtype != b.dtype:
        return f"a is {_kind(a)} and b is {_kind(b)}: they must be matrices that can be multiplied"
    return _fits(arguments["buffer"], arguments["first"], a.shape[0] * b.shape[1], a.dtype)


def span_fits(arguments: Arguments) -> str:
    """all_reduce_fused, all_reduce_hierarchical: the span is inside of the buffer."""
    buffer = arguments["buffer"]
    return _fits(buffer, arguments["first"], arguments["count"], buffer.dtype)


def bounds_fit(arguments: Arguments) -> str:
    """reduce_scatter: the bounds of the ranks' shards are in order, and the span is inside of the buffer."""
    bounds, degree, buffer = arguments["bounds"], arguments["degree"], arguments["buffer"]
    if len(bounds) != degree + 1 or bounds[0] != 0 or list(bounds) != sorted(bounds):
        return f"bounds is {bounds}: they must be {degree + 1} numbers in order, from 0 on"
    return _fits(buffer, arguments["first"], bounds[-1], buffer.dtype)


def rows_fit(arguments: Arguments) -> str:
    """shard_rows: the rows exist."""
    x, first, last = arguments["x"], arguments["first"], arguments["last"]
    rows = x.shape[0] if x.ndim else 1
    if isinstance(rows, int) and not 0 <= first <= last <= rows:
        return f"rows {first} to {last} are not inside of {_kind(x)}"
    return ""


def _fits(flat: Tensor, first: int, count: Any, dtype: torch.dtype) -> str:
    if flat.ndim != 1 or flat.dtype != dtype:
        return f"the flat tensor is {_kind(flat)}: it must have one dimension, and the dtype {dtype}"
    numbers = (first, count, flat.numel())
    if all(isinstance(n, int) for n in numbers) and not 0 <= first <= first + count <= flat.numel():
        return f"elements {first} to {first + count} are not inside of the flat tensor, {_kind(flat)}"
    return ""


def activation(known: Sequence[str], *names: str) -> Verifier:
    """A verifier of an op with an argument `act`, one of these, and arguments with the shape and dtype of the first."""

    def verify(arguments: Arguments) -> str:
        if arguments["act"] not in known:
            return f"act is {arguments['act']!r}: it must be one of {', '.join(known)}"
        first = arguments[names[0]]
        for name in names[1:]:
            value = arguments[name]
            if value is not None and not (_same_shape(value, first) and value.dtype == first.dtype):
                return f"{name} is {_kind(value)}, and {names[0]} is {_kind(first)}: they must be the same"
        return ""

    return verify


def addition(known: Sequence[str]) -> Verifier:
    """A verifier of add_act and its variants: b may lack leading dimensions of a."""
    verify_act = activation(known, "a")

    def verify(arguments: Arguments) -> str:
        a, b = arguments["a"], arguments["b"]
        pairs = zip(reversed(a.shape), reversed(b.shape), strict=False)
        fits = b.ndim <= a.ndim and all(_same_size(n, m) or m == 1 for n, m in pairs)
        if not fits or a.dtype != b.dtype:
            return f"a is {_kind(a)} and b is {_kind(b)}: b must have the dtype and the last dimensions of a"
        return verify_act(arguments)

    return verify


def overwrites(name: str, inner: Verifier) -> Verifier:
    """The same verifier for the variant that writes its result into `name`: no other argument aliases it."""

    def verify(arguments: Arguments) -> str:
        tensors = {key: value for key, value in arguments.items() if isinstance(value, Tensor)}
        return inner(arguments) or _distinct(tensors, [name])

    return verify


def as_many_sources(arguments: Arguments) -> str:
    """broadcast_fused: one source rank for each tensor."""
    xs, sources = arguments["xs"], arguments["sources"]
    return "" if len(xs) == len(sources) else f"there are {len(xs)} tensors and {len(sources)} sources"


def rows_of_ids(arguments: Arguments) -> str:
    """gather_rows: one row for each id."""
    rows, ids = arguments["rows"], arguments["ids"]
    leading = zip(rows.shape, ids.shape, strict=False)
    if ids.dtype != torch.int64 or rows.ndim != ids.ndim + 1 or not all(_same_size(n, m) for n, m in leading):
        return f"ids is {_kind(ids)} and rows is {_kind(rows)}: rows must have a row for each id, and ids be int64"
    return ""


def same_channels(arguments: Arguments) -> str:
    """update_running_stats: four vectors of the same size, of which the first two are mutated."""
    names = ("mean", "var", "batch_mean", "batch_invstd")
    tensors = {name: arguments[name] for name in names}
    for name, value in tensors.items():
        if not _same_shape(value, tensors["mean"]):
            return f"{name} is {_kind(value)}, and mean is {_kind(tensors['mean'])}: they must have the same shape"
    return _distinct(tensors, names[:2])


def same_shape(written: str, other: str) -> Verifier:
    """A verifier of two tensors of one shape that do not share memory; the first is written."""

    def verify(arguments: Arguments) -> str:
        tensors = {name: arguments[name] for name in (written, other)}
        if not _same_shape(*tensors.values()):
            kinds = " and ".join(f"{name} is {_kind(value)}" for name, value in tensors.items())
            return f"{kinds}: they must have the same shape"
        return _distinct(tensors, [written])

    return verify


def same_shapes(written: str, others: str) -> Verifier:
    """The same for two lists, element by element."""

    def verify(arguments: Arguments) -> str:
        first, second = arguments[written], arguments[others]
        if len(first) != len(second):
            return (
                f"{written} has {len(first)} elements, and {others} has {len(second)}: they must have as many"
            )
        pairs = zip(first, second, strict=True)
        problems = (same_shape(written, others)({written: a, others: b}) for a, b in pairs)
        return next(filter(None, problems), "")

    return verify


def one_of(name: str, known: Sequence[str]) -> Verifier:
    """A verifier of an argument that is one of these words."""
    return lambda arguments: (
        ""
        if arguments[name] in known
        else f"{name} is {arguments[name]!r}: it must be one of {', '.join(known)}"
    )


# --- comparisons --------------------------------------------------------------------------------------


def _distinct(tensors: Mapping[str, Tensor], mutated: Sequence[str] | Mapping[str, Tensor]) -> str:
    """What is wrong if a mutated tensor shares memory with another one."""
    memory = {name: value.untyped_storage()._cdata for name, value in tensors.items()}
    for name in mutated:
        for other, place in memory.items():
            if other != name and place == memory[name]:
                return f"{name} and {other} share memory, and {name} is written"
    return ""


def _same_size(a: Any, b: Any) -> bool:
    return not (isinstance(a, int) and isinstance(b, int)) or a == b


def _same_shape(a: Tensor, b: Tensor) -> bool:
    return a.ndim == b.ndim and all(_same_size(n, m) for n, m in zip(a.shape, b.shape, strict=True))


def _is_single(value: Tensor) -> bool:
    return all(_same_size(size, 1) for size in value.shape)


def _kind(value: Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
