"""A `torch.nn.Module` called on a Variable becomes part of the Variable's program.

    net = torch.nn.Sequential(…)
    y = net(x)              x: Variable  ──▶  y: Variable; net's parameters are parameters of the program

Inside, the module sees tensors (fake ones, with symbolic sizes), never Variables: `x.shape[0]` is a size,
and what it computes without touching its input, such as a position embedding, is recorded as well.
A module keeps its variables for all its calls in a program, so calling it twice shares the weights.
"""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch
from torch import fx

from argosy.engine.errors import ArgosyError, ProgramError
from argosy.engine.ir import names
from argosy.engine.ir.effects import changed_inputs, storage
from argosy.engine.ir.program import Program
from argosy.engine.ir.recorder import why
from argosy.engine.ir.source import user_line
from argosy.engine.ir.variable import Variable, first_variable

_plain_call = torch.nn.Module.__call__


def accept_variables() -> None:
    """Let every torch module take Variables, from now on in this process.

    There is no other place to hook in: hooks of a module see its arguments too late to run the whole
    call, and a subclass would exclude modules that exist. torch.fx patches the same method to trace.
    """
    torch.nn.Module.__call__ = _call  # type: ignore[method-assign]  # see the docstring


def _call(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    variable = first_variable((args, kwargs))
    if variable is None:
        return _plain_call(self, *args, **kwargs)
    return call_module(variable.program, self, args, kwargs)


def call_module(
    program: Program, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Record the module's forward in the program."""
    prefix = _prefix(program, module)
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    replaced = {key: program.adopt(tensor, f"{prefix}.{key}").value for key, tensor in tensors.items()}
    plain_args, plain_kwargs = program.unwrap((args, kwargs))
    last, buffers = _last(program.graph), [replaced[key] for key, _ in module.named_buffers()]
    try:
        with program.recording():
            out = torch.func.functional_call(module, replaced, plain_args, plain_kwargs)
    except ArgosyError:
        raise
    except Exception as e:
        raise ProgramError(
            f"{type(module).__name__} called at {user_line()} cannot be built: {why(e)}"
        ) from e
    if module.training:
        _mark_updates(last, {value.untyped_storage()._cdata for value in buffers})
    return program.wrap(out, prefix)


def values_for(program: Program, module: torch.nn.Module) -> dict[str, Variable]:
    """The program's variables of this module, by the module's own names."""
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    missing = [key for key, tensor in tensors.items() if id(tensor) not in program.adopted]
    if missing:
        raise ProgramError(
            f"{type(module).__name__} was never called in {program.name}: {missing[0]!r} is unknown there"
        )
    return {key: program.vars[program.adopted[id(tensor)][1]] for key, tensor in tensors.items()}


def _prefix(program: Program, module: torch.nn.Module) -> str:
    key = id(module)
    if key not in program.module_names:
        program.module_names[key] = (module, names.generate(type(module).__name__.lower()))
    return program.module_names[key][1]


def _last(graph: fx.Graph) -> fx.Node:
    return graph._root.prev


def _mark_updates(last: fx.Node, buffers: set[int]) -> None:
    """Changes of buffers belong to training: `clone(for_test=True)` leaves them out."""
    node = last.next
    while node.op != "root":
        if any(storage(source) in buffers for source in changed_inputs(node)):
            node.meta["train_only"] = True
        node = node.next
