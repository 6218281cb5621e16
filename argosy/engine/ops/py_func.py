"""py_func: call a Python function of the script on the arrays of the step.

    y, … = py_func([x, …], 3, [sizes of y, …], [dtype of y, …])

The function is known by its number in this process, so that a program with it cannot be saved.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from argosy.engine.errors import ProgramError
from argosy.engine.ops.op_spec import OpSpec, declare

_functions: list[Callable[..., Any]] = []


def register(function: Callable[..., Any]) -> int:
    """The number of a function for `py_func`."""
    _functions.append(function)
    return len(_functions) - 1


def _kernel(
    xs: Sequence[Tensor],
    number: int,
    sizes: Sequence[int],
    ndims: Sequence[int],
    dtypes: Sequence[torch.dtype],
) -> list[Tensor]:
    """`sizes`: those of all results, one after the other; `ndims`: how many each has."""
    function = _functions[number]
    name = getattr(function, "__name__", "function")
    returned = function(*(x.detach().cpu().numpy().copy() for x in xs))
    listed = list(returned) if isinstance(returned, list | tuple) else [] if returned is None else [returned]
    if len(listed) != len(ndims):
        raise ProgramError(f"py_func: {name} returned {len(listed)} values, and `out` has {len(ndims)}")
    results, rest = [], list(sizes)
    for place, (value, ndim, dtype) in enumerate(zip(listed, ndims, dtypes, strict=True)):
        wanted, rest = rest[:ndim], rest[ndim:]
        result = torch.from_numpy(np.array(value)).to(xs[0].device if xs else "cpu")
        if list(result.shape) != wanted or result.dtype != dtype:
            raise ProgramError(
                f"py_func: {name} returned {result.dtype}{list(result.shape)} as value {place}, and `out` is "
                f"{dtype}{wanted}; return arrays of the declared shape and dtype"
            )
        results.append(result)
    return results


def _fake(
    xs: Sequence[Tensor],
    number: int,
    sizes: Sequence[int],
    ndims: Sequence[int],
    dtypes: Sequence[torch.dtype],
) -> list[Tensor]:
    results, rest = [], list(sizes)
    for ndim, dtype in zip(ndims, dtypes, strict=True):
        results.append(torch.empty(rest[:ndim], dtype=dtype))
        rest = rest[ndim:]
    return results


py_func = declare(
    "py_func(Tensor[] xs, int number, SymInt[] sizes, int[] ndims, ScalarType[] dtypes) -> Tensor[]",
    _kernel,
    _fake,
)
SPEC = OpSpec(py_func, _kernel, has_side_effects=True)
