"""paddle.distributed's collectives as nodes of a program.

    distributed.all_reduce(loss)        each run: loss becomes the sum over the ranks

As in Paddle the Variable's value becomes the result, so it must not be a feed. Gradients do not flow through them. All
ranks must build them in the same order, after init_parallel_env or fleet.init.
"""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch
from torch import Tensor

from argosy.engine import collective
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import default_main_program
from argosy.engine.ir.variable import Variable
from argosy.engine.ops import tensor_collectives as ops
from argosy.framework.layer import apply
from argosy.tensor.creation import assign

_GROUP = "dp"


class ReduceOp:
    """How all_reduce and reduce combine the values."""

    SUM, MAX, MIN, PROD = 0, 1, 2, 3


def all_reduce(tensor: Variable, op: int = ReduceOp.SUM, group: Any = 0) -> Variable:
    """The Variable becomes the sum (maximum, minimum, product) of its values on all ranks."""
    _check("all_reduce", group, tensor)
    return _write(_reduced("all_reduce", tensor, op), tensor)


def reduce(tensor: Variable, dst: int, op: int = ReduceOp.SUM, group: Any = 0) -> Variable:
    """On rank dst the Variable becomes the sum of its values on all ranks; elsewhere it stays as it is."""
    _check("reduce", group, tensor, dst)
    reduced = _reduced("reduce", tensor, op)
    return _write(reduced if collective.world().rank == dst else tensor, tensor)


def broadcast(tensor: Variable, src: int, group: Any = 0) -> Variable:
    """The Variable becomes that of rank src."""
    _check("broadcast", group, tensor, src)
    return _write(_call("broadcast", ops.broadcast_value, tensor, src), tensor)


def all_gather(tensor_list: list[Any], tensor: Variable, group: Any = 0) -> None:
    """Append the Variable's values on all ranks to tensor_list, in the order of the ranks."""
    _check("all_gather", group, tensor)
    gathered = _call("all_gather", ops.gather_values, tensor)
    tensor_list.extend(apply("all_gather", torch.unbind, gathered))


def scatter(tensor: Variable, tensor_list: list[Any] | None = None, src: int = 0, group: Any = 0) -> Variable:
    """The Variable becomes tensor_list[rank] of rank src; the other ranks need no list."""
    _check("scatter", group, tensor, src)
    world = collective.world()
    if world.rank == src and (tensor_list is None or len(tensor_list) != world.size):
        count = 0 if tensor_list is None else len(tensor_list)
        raise ConfigError(
            f"scatter: rank {src} gives {count} Variables for {world.size} ranks; give one for each"
        )
    given = tensor_list if world.rank == src and tensor_list else [tensor] * world.size

    def part(x: Tensor) -> Tensor:
        return x[world.rank].clone()

    stacked = apply("scatter", lambda *parts: torch.stack(parts), *given)
    everything = _call("scatter", ops.broadcast_value, stacked, src)
    return _write(apply("scatter", part, everything), tensor)


def reduce_scatter(tensor: Variable, group: Any = 0) -> Any:
    """This rank's part, along axis 0, of the sum of the Variables of all ranks."""
    _check("reduce_scatter", group, tensor)
    world = collective.world()
    if tensor.shape[0] < 0 or tensor.shape[0] % world.size:
        raise ConfigError(
            f"reduce_scatter: {tensor.name!r} has {tensor.shape[0]} rows, which {world.size} ranks cannot share equally"
        )
    rows = tensor.shape[0] // world.size
    total = _reduced("reduce_scatter", tensor, ReduceOp.SUM)
    return apply("reduce_scatter", lambda x: x[world.rank * rows : (world.rank + 1) * rows].clone(), total)


def barrier(group: Any = 0) -> None:
    """A node that blocks until all ranks have run it."""
    _check("barrier", group)
    default_main_program().call(ops.barrier, (_GROUP, "distributed.barrier"), {}, "barrier")


def _reduced(kind: str, tensor: Variable, op: int) -> Any:
    if op not in range(len(ops.REDUCTIONS)):
        raise ConfigError(f"{kind}: op={op!r} is not known; use ReduceOp.SUM, MAX, MIN or PROD")
    return _call(kind, ops.reduce_value, tensor, ops.REDUCTIONS[op])


def _call(kind: str, op: Any, tensor: Variable, *args: Any) -> Any:
    def run(x: Tensor) -> Tensor:
        with torch.no_grad():
            result: Tensor = op(x, *args, _GROUP, f"distributed.{kind}")
            return result

    return apply(kind, run, tensor)


def _write(result: Any, tensor: Variable) -> Variable:
    def written(result: Tensor, tensor: Tensor) -> Tensor:
        with torch.no_grad():
            return tensor.copy_(result)

    if tensor.is_data:
        assign(result, tensor)  # raises: a feed is not written
    apply("assign", written, result, tensor)
    return tensor


def _check(kind: str, group: Any, tensor: Any = None, rank: int = 0) -> None:
    if group not in (0, None):
        raise ConfigError(f"{kind}: group={group!r} is not supported; leave it out for all ranks")
    if tensor is not None and not isinstance(tensor, Variable):
        raise ConfigError(
            f"{kind}: a {type(tensor).__name__} is not a Variable of a program; give a Variable"
        )
    if not 0 <= rank < collective.world().size:
        raise ConfigError(f"{kind}: there is no rank {rank}; use 0 to {collective.world().size - 1}")
