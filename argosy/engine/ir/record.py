"""Record functions that are called on Variables: their operators become nodes, their results Variables.

torch.relu(x) ──▶ Variable.__torch_function__ ──▶ Program.call ──▶ record_function ──▶ Recorder
net(x)        ──▶ torch_module.call_module ────────────────────▶ record_call     ──▶ Recorder
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves, tree_map_only

from argosy.engine.errors import ArgosyError
from argosy.engine.ir import names
from argosy.engine.ir.build_errors import building, needs_data
from argosy.engine.ir.dtypes import dtype_name
from argosy.engine.ir.recorded_call import (
    RecordedCall,
    Substitute,
    new_number,
    substituted,
    without_training,
)
from argosy.engine.ir.source import user_line
from argosy.engine.ir.variable import Variable

if TYPE_CHECKING:
    from argosy.engine.ir.program import Program


class RecordAgain(BaseException):
    """Raised by code that is being recorded: discard its nodes, and call it again."""


def record_function(
    program: Program,
    func: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    layer: str,
    layer_name: str | None,
) -> Any:
    """Record a torch function called on Variables; see `Program.call`."""
    plain_args, plain_kwargs = unwrap(program, (tuple(args), kwargs))
    layer = layer or _plain_name(func)

    def what() -> str:
        given = ", ".join(_shown(a) for a in (*args, *kwargs.values()) if isinstance(a, Variable))
        return f"{layer}({given})"

    def run() -> Any:
        return func(*plain_args, **plain_kwargs)

    with building(what, program.symbols):
        evaluation = without_training(func, plain_args, plain_kwargs)
        if evaluation is None:
            out = _recorded(program, run)
        else:

            def evaluate(substitute: Substitute) -> Any:
                new_args, new_kwargs = substituted(evaluation, substitute)
                return func(*new_args, **new_kwargs)

            values = [t for t in tree_leaves((plain_args, plain_kwargs)) if isinstance(t, FakeTensor)]
            out = record_call(program, what(), values, run, evaluate)
    return wrap(program, out, layer_name or names.generate(layer))


def unwrap(program: Program, tree: Any) -> Any:
    """Replace Variables by their fake tensors, torch Parameters by those of their variables, arrays by constants."""

    def unwrapped(value: Any) -> Any:
        if isinstance(value, Variable):
            return program.recorder.local(program.check_owner(value).value)
        if isinstance(value, np.ndarray):
            return torch.from_numpy(value.copy())  # a constant of the program
        return program.recorder.local(program.add_module_tensor(value, names.generate("parameter")).value)

    return tree_map_only((Variable, torch.nn.Parameter, np.ndarray), unwrapped, tree)


def wrap(program: Program, tree: Any, layer: str) -> Any:
    """Replace fake tensors by Variables named `layer`.tmp_0, .tmp_1, …"""

    def variable(value: torch.Tensor) -> Variable:
        known = program.variable_of(value)
        if known is not None and program.vars.get(known.name) is known:
            return known
        return program.add(Variable(program, names.generate_unused(f"{layer}.tmp", program.vars), value))

    return tree_map_only(torch.Tensor, variable, tree)


def record_call(
    program: Program,
    what: str,
    inputs: Sequence[torch.Tensor],
    run: Callable[[], Any],
    evaluate: Callable[[Substitute], Any] | None,
    has_attributes: bool = False,
) -> Any:
    """Record what `run` computes as one call; `evaluate` records the same call in evaluation mode."""
    recorder = program.recorder
    number, before = new_number(), tuple((value, recorder.node(value)) for value in inputs)
    with recorder.in_call(number):
        out = _recorded(program, run)
        if evaluate is not None:
            out = _with_distinct_nodes(program, out, number)
    after = tuple(recorder.node(value) for value in inputs)
    recorder.calls[number] = RecordedCall(
        f"{what} at {user_line()}", before, after, out, evaluate, has_attributes
    )
    return out


def _recorded(program: Program, run: Callable[[], Any]) -> Any:
    """Call `run` and record its ops; returns its result.

    Code that raises for a size (`if x.shape[1] != self.channels: raise …`) states what the size must be: if it
    was unknown, the other branch is assumed, and `run` is called again.
    """
    env = program.symbols.env
    first: Exception | None = None
    while True:
        before = env.snapshot()
        try:
            with program.recorder.attempt(), program.recording():
                return run()
        except RecordAgain:
            env.restore(before)
        except Exception as e:
            first = first or e
            other = None if isinstance(e, ArgosyError) or needs_data(e) else env.other_branch(before)
            env.restore(before)
            if other is None or not env.assume(other.condition, other.line):
                raise first from None


def _with_distinct_nodes(program: Program, tree: Any, number: int) -> Any:
    """Add alias nodes for results that are inputs, or duplicates: in evaluation mode they may differ."""
    recorder = program.recorder
    seen: set[fx.Node] = set()

    def distinct(value: torch.Tensor) -> torch.Tensor:
        if not isinstance(value, FakeTensor):
            return value
        node = recorder.node(value)
        if node.meta.get("call") == number and node not in seen:
            seen.add(node)
            return value
        with program.recording(), recorder.recording_aliases():
            value = torch.ops.aten.alias.default(value)
        seen.add(recorder.node(value))
        return value

    return tree_map_only(torch.Tensor, distinct, tree)


def _shown(variable: Variable) -> str:
    return f"{variable.name}: {dtype_name(variable.dtype)}{list(variable.shape)}"


def _plain_name(func: Callable[..., Any]) -> str:
    return getattr(func, "__name__", type(func).__name__).strip("_")
