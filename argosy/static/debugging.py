"""Code of the host in a step: printing, assertions, functions of Python."""

# SPDX-License-Identifier: Apache-2.0
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from argosy.engine.errors import ConfigError
from argosy.engine.ir import names
from argosy.engine.ir.program import default_main_program
from argosy.engine.ir.variable import Variable
from argosy.engine.ops import py_func as py_func_op
from argosy.engine.ops.assertion import assertion
from argosy.engine.ops.print_tensor import print_tensor
from argosy.framework.checks import integer, one_of
from argosy.framework.layer import LayerBuilder, apply

_numbers = itertools.count()
"""Numbers of prints: two programs of a process may have prints of one name, and each counts its own."""


def Print(
    input: Variable,
    first_n: int = -1,
    message: str | None = None,
    summarize: int = 20,
    print_tensor_name: bool = True,
    print_tensor_type: bool = True,
    print_tensor_shape: bool = True,
    print_tensor_layout: bool = True,
    print_tensor_lod: bool = True,
    print_phase: str = "both",
) -> Any:
    """Print a variable, and its gradient, to stderr in every run; returns the variable.

    `first_n`: only so often; -1: always. `summarize`: so many elements; -1: all. `print_phase`: forward, backward or
    both. There is no LoD to print.
    """
    phase = one_of("Print: print_phase", print_phase, "forward", "backward", "both")
    flags = {"shape": print_tensor_shape, "layout": print_tensor_layout, "dtype": print_tensor_type}
    fields = " ".join([field for field, wanted in flags.items() if wanted] + ["data"])
    limits = integer("Print: first_n", first_n, least=-1), integer("Print: summarize", summarize, least=-1)
    layer, number = names.generate("print"), next(_numbers)

    def show(x: torch.Tensor, variable: str) -> None:
        words = [message or "", f"Variable: {variable}" if print_tensor_name else ""]
        print_tensor(x, f"{layer}#{number} {variable}", "\n".join(filter(None, words)), fields, *limits)

    class Printed(torch.autograd.Function):
        """x; prints it and its gradient."""

        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            if phase != "backward":
                show(x, input.name)
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
            if phase != "forward":
                show(gradients[0], f"{input.name}@GRAD")
            return gradients[0]

    return apply("print", Printed.apply, input, name=layer)


def Assert(
    cond: Variable, data: Sequence[Variable] | None = None, summarize: int = 20, name: str | None = None
) -> None:
    """Raise when the step runs if the condition is false; the message shows the first elements of `data`."""
    if not isinstance(cond, Variable) or cond.dtype is not torch.bool:
        raise ConfigError(f"Assert: the condition is {cond!r}; use a bool Variable of one element")
    message, count = f"Assert: {cond.name!r} is false", integer("Assert: summarize", summarize, least=-1)
    apply("assert", assertion, cond, list(data or ()), message, count, name=name)


def py_func(
    func: Callable[..., Any],
    x: Variable | Sequence[Variable],
    out: Variable | Sequence[Variable],
    backward_func: Callable[..., Any] | None = None,
    skip_vars_in_backward_input: Variable | Sequence[Variable] | None = None,
) -> Any:
    """Call a Python function on the arrays of `x` in every run; its arrays are the values of `out`, which is returned.

    `out`: variables of create_var. An unknown size (-1) is that of the same dimension of the first x that has one.
    `backward_func(*x, *out, *gradients of out)`, without the skipped, returns the gradients of x; without it none flow.
    """
    if not callable(func) or not (backward_func is None or callable(backward_func)):
        raise ConfigError(f"py_func: func is {func!r}, backward_func is {backward_func!r}; use functions")
    inputs, outs, skipped = _listed(x), _listed(out), _listed(skip_vars_in_backward_input)
    for variable in (*inputs, *outs, *skipped):
        if not isinstance(variable, Variable):
            raise ConfigError(f"py_func was given {variable!r}; use Variables")
    if unknown := [v for v in skipped if all(v is not other for other in (*inputs, *outs))]:
        raise ConfigError(
            f"py_func: {unknown[0]!r} of skip_vars_in_backward_input is neither in x nor in out"
        )
    shapes = [_sizes(variable, inputs) for variable in outs]
    is_passed = [all(v is not other for other in skipped) for v in (*inputs, *outs)]
    call = _function(func, backward_func, shapes, [v.dtype for v in outs], is_passed)
    program = inputs[0].program if inputs else default_main_program()
    results = LayerBuilder("py_func").run(lambda *values: tuple(call.apply(*values)), *inputs)
    for variable, result in zip(outs, results, strict=True):
        program.write(variable, result.value)
    return out


def _function(
    func: Callable[..., Any],
    backward_func: Any,
    shapes: list[Any],
    dtypes: list[torch.dtype],
    kept: list[bool],
) -> Any:
    numbers = [py_func_op.register(f) if f is not None else -1 for f in (func, backward_func)]

    def call(number: int, values: Sequence[torch.Tensor], sizes: list[Any], kinds: list[torch.dtype]) -> Any:
        flat = [size for shape in sizes for size in shape]
        return py_func_op.py_func(list(values), number, flat, [len(shape) for shape in sizes], kinds)

    class PyFunc(torch.autograd.Function):
        """The call, and that of its derivative."""

        @staticmethod
        def forward(ctx: Any, *values: torch.Tensor) -> Any:
            results = tuple(call(numbers[0], values, shapes, dtypes))
            ctx.save_for_backward(*values, *results)
            ctx.num_inputs = len(values)
            floats = [r for r in results if r.dtype.is_floating_point and backward_func is not None]
            ctx.mark_non_differentiable(*(r for r in results if all(r is not other for other in floats)))
            return results

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
            saved, inputs = ctx.saved_tensors, ctx.saved_tensors[: ctx.num_inputs]
            values = [value for value, wanted in zip(saved, kept, strict=True) if wanted]
            floats = [v for v in inputs if v.dtype.is_floating_point]
            computed = iter(
                call(numbers[1], [*values, *gradients], [v.shape for v in floats], [v.dtype for v in floats])
            )
            return tuple(next(computed) if v.dtype.is_floating_point else None for v in inputs)

    return PyFunc


def _sizes(out: Variable, inputs: Sequence[Variable]) -> list[Any]:
    """The sizes of a result; a size of -1 is that of the same dimension of an input."""
    if out.declared_shape is None:
        return list(out.size())
    sizes: list[Any] = []
    for dim, size in enumerate(out.declared_shape):
        if size >= 0:
            sizes.append(size)
            continue
        symbols = [v.size(dim) for v in inputs if dim < v.ndim and v.shape[dim] < 0]
        if not symbols:
            raise ConfigError(
                f"py_func: dimension {dim} of out {out.name!r} is -1, and no x has an unknown size there; give the size"
            )
        sizes.append(symbols[0])
    return sizes


def _listed(values: Any) -> list[Any]:
    return [] if values is None else list(values) if isinstance(values, list | tuple) else [values]
