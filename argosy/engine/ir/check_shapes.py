"""Check the recorded shapes for feeds that violate an assumption of a shape function.

While a program is built, torch's shape functions may decide by the hint of a size (N is 13, so it is not 1). Most
such decisions concern strides and change no shape. When such sizes are fed, the shapes of all nodes are inferred once
with the actual numbers, and compared with the recorded ones.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch import fx
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils._pytree import tree_leaves, tree_map_only

from argosy.engine.errors import FeedError
from argosy.engine.ir.shape_functions import fake_result_of_numbers
from argosy.engine.ir.size_env import Assumption
from argosy.engine.ir.symbols import Sizes, Symbols
from argosy.engine.ir.verify import describe

_UNKNOWN = object()
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def confirm_shapes(
    nodes: Iterable[fx.Node], symbols: Symbols, doubtful: Sequence[Assumption], sizes: Sizes
) -> None:
    """Raise FeedError if a node has another shape for these sizes than the recorded one."""
    numbers = {s: sympy.Integer(size) for s, size in sizes.items()}
    numbers |= {symbols.env.replace(s): n for s, n in numbers.items()}
    values: dict[fx.Node, Any] = {}
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode, torch.no_grad():
        for node in nodes:
            values[node] = _value(node, values, numbers, symbols, doubtful[0], sizes, mode)
    for node, value in values.items():  # after all nodes ran: unsqueeze_ and the like change shapes in place
        for recorded, computed in zip(_shapes(node.meta.get("val")), _shapes(value), strict=False):
            expected = [_number(size, numbers) for size in recorded]
            if len(expected) != len(computed) or any(
                n is not None and n != size for n, size in zip(expected, computed, strict=True)
            ):
                raise FeedError(
                    f"{symbols.sizes_of_feeds(doubtful[0].condition, sizes)}; {describe(node)} then gives "
                    f"{list(computed)} where the program was built for {_shown(recorded, symbols)}; feed sizes "
                    "that fit, or build it for these"
                )


def _value(
    node: fx.Node,
    values: Mapping[fx.Node, Any],
    numbers: Mapping[Any, Any],
    symbols: Symbols,
    doubt: Assumption,
    sizes: Sizes,
    mode: FakeTensorMode,
) -> Any:
    if node.op != "call_function":
        recorded = node.meta["val"]
        shape = [n for size in recorded.shape if (n := _number(size, numbers)) is not None]
        return torch.empty(shape, dtype=recorded.dtype) if len(shape) == recorded.ndim else _UNKNOWN
    if any(values.get(source, _UNKNOWN) is _UNKNOWN for source in node.all_input_nodes):
        return _UNKNOWN
    args, kwargs = tree_map_only(fx.Node, values.__getitem__, (node.args, node.kwargs))
    try:
        return fake_result_of_numbers(node.target, args, kwargs, mode)
    except (DynamicOutputShapeException, DataDependentOutputException, ZeroDivisionError):
        return _UNKNOWN
    except Exception as e:
        if not any(isinstance(v, FakeTensor) for v in tree_leaves((args, kwargs))):
            return _UNKNOWN  # a number that depends on data
        raise FeedError(
            f"{symbols.sizes_of_feeds(doubt.condition, sizes)}; {describe(node)} rejects them: "
            f"{str(e).splitlines()[0]}"
        ) from e


def _shapes(value: Any) -> list[Sequence[Any]]:
    return [leaf.shape for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _number(size: Any, numbers: Mapping[Any, Any]) -> int | None:
    """The number for a recorded size; None if it depends on data."""
    if not isinstance(size, _SYMBOLIC):
        return int(size)
    value = size.node.expr.xreplace(numbers)
    return int(value) if value.is_number else None


def _shown(shape: Sequence[Any], symbols: Symbols) -> str:
    sizes = (str(s) if isinstance(s, int) else symbols.describe(s.node.expr) for s in shape)
    return f"[{', '.join(sizes)}]"
