"""Look up what the user fetches, and convert the values to NumPy arrays that print as Paddle's."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import fx

from argosy.engine.data.lod_tensor import LoDTensor
from argosy.engine.errors import FetchError, FetchTypeError, LoDFetchError, nearest
from argosy.engine.ir.program import Program
from argosy.engine.ir.ragged import all_lengths_of
from argosy.engine.ir.variable import Variable


class OneElement(np.ndarray[Any, Any]):
    """A fetched array with one element, which also formats as a number: `"%.5f" % loss`.

    Paddle's losses have shape [1] and its scripts print them so; plain NumPy rejects that since 2.4.
    """

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        plain = np.asarray(array)
        return plain[()] if return_scalar else printable(plain)


def fetched_variables(program: Program, wanted: Any) -> list[Variable]:
    """The program's variables for a fetch list: Variables or names, or one of them; lists and tuples are flattened.

    What `minimize` returned, alone or in the list, fetches nothing: its updates run anyway.
    """
    return [] if wanted is None else [_fetch(program, f) for f in _flat(wanted) if not isinstance(f, fx.Node)]


def fetches_updates(wanted: Any) -> bool:
    """True if a fetch list contains what `minimize` returned, or its updates."""
    return any(isinstance(fetch, fx.Node) for fetch in _flat(wanted))


def _flat(wanted: Any) -> Iterator[Any]:
    """The entries of nested lists and tuples; of what minimize returned only the updates, as in Paddle."""
    if not isinstance(wanted, list | tuple):
        yield wanted
        return
    is_of_minimize = isinstance(wanted, tuple) and len(wanted) == 2 and _are_updates(wanted[0])
    for part in wanted[:1] if is_of_minimize else wanted:
        yield from _flat(part)


def _are_updates(part: Any) -> bool:
    return isinstance(part, list) and bool(part) and all(isinstance(item, fx.Node) for item in part)


def _fetch(program: Program, wanted: Any) -> Variable:
    if hasattr(wanted, "get_lr"):
        rates = [name for name, scheduler in program.training.schedulers if scheduler is wanted]
        raise FetchError(
            f"a learning-rate schedule is not a Variable; fetch the rate's variable: {rates or 'none yet'}"
        )
    if not isinstance(wanted, Variable | str):
        raise FetchTypeError(f"fetch_list holds {wanted!r}; give Variables or their names")
    name = wanted.name if isinstance(wanted, Variable) else wanted
    variable = program.vars.get(name)
    if variable is None and isinstance(wanted, Variable):
        raise FetchError(
            f"fetch {name!r} belongs to {wanted.program.name!r}, not to {program.name!r}, which was run; "
            "fetch it from its own program, or clone that program"
        )
    if variable is None:
        advice = "; add it with static.gradients(loss, [x])" if name.endswith("@GRAD") else ""
        raise FetchError(f"fetch {name!r} is not in {program.name!r}{nearest(name, program.vars)}{advice}")
    return variable


def with_lengths(wanted: list[Variable], return_numpy: bool) -> list[Variable]:
    """The variables, then the lengths of those that are ragged; raises for a ragged one with `return_numpy`."""
    ragged = {v.name: all_lengths_of(v) for v in wanted if v.lod_level}
    if ragged and return_numpy:
        raise LoDFetchError(
            f"some of your fetched tensors hold LoD information: {', '.join(ragged)}; they cannot be cast to NumPy "
            "arrays: call run with return_numpy=False, and np.array(result) for the rows alone"
        )
    return [*wanted, *(lengths for levels in ragged.values() for lengths in levels)]


def as_lod_tensors(wanted: list[Variable], fetched: list[Any]) -> list[Any]:
    """The values of `with_lengths` for the wanted variables: a LoDTensor for each ragged one."""
    levels = iter(fetched[len(wanted) :])
    values: list[Any] = []
    for variable, value in zip(wanted, fetched, strict=False):
        lengths = [next(levels).numpy(force=True) for _ in range(variable.lod_level)]
        values.append(LoDTensor.of_lengths(value, lengths) if lengths else value)
    return values


def to_numpy(value: torch.Tensor) -> np.ndarray[Any, Any]:
    """The value as an array; bfloat16, which NumPy lacks, as float32."""
    value = value.float() if value.dtype is torch.bfloat16 else value
    return printable(value.numpy(force=True))


def printable(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array; if it has one element, as a OneElement."""
    return array.view(OneElement) if array.ndim and array.size == 1 else array
