"""One copy of the weights for the ranks of a host: parameters in memory that the ranks of a sharding group share.

    scope of rank 0   w ──┐
                          ├──▶ segment   rows 0-3: updated by rank 0, rows 4-7 by rank 1
    scope of rank 1   w ──┘

The first step of a sharded program copies the parameters into a segment and puts views of it into the scope. No rank
writes to them but the sharded update, between two barriers: the wait for a reduce-scatter, which every rank reaches
after its last backward node, and the one that ends the step. Everything else that writes a parameter (loading, another
program) replaces it in this rank's scope by a private tensor, so that no other rank sees a change in the middle of its
own work; the next sharded step copies it into the segment, together with the other ranks.

A segment is anonymous (collective/shm.py): it is freed with its last process.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import fx

from argosy.engine.collective import sharding_group, world
from argosy.engine.collective.shm import SharedSegment
from argosy.engine.ir.effects import mutated_inputs, storage
from argosy.engine.log import logger
from argosy.engine.ops.sharding import all_gather_shards, shard_rows
from argosy.engine.runtime.scope import Scope

_ALIGNMENT = 64


@dataclass(frozen=True)
class SharedNames:
    """The parameters of a compiled step that its ranks may share, and the process group that does."""

    names: tuple[str, ...]
    degree: int

    @classmethod
    def of(cls, nodes: Sequence[fx.Node], named: Mapping[fx.Node, str]) -> "SharedNames | None":
        """None if the step has no sharded updates, or does not share.

        A parameter that another node mutates as well is not shared: each rank would do so on the same memory.
        """
        gathers = [n for n in nodes if n.target is all_gather_shards and n.args[5]]
        mutated = {
            storage(source)
            for node in nodes
            if node.target is not all_gather_shards
            for source in mutated_inputs(node)
            if source.target is not shard_rows
        }
        gathered = [p for node in gathers for p in cast("list[fx.Node]", node.args[0])]
        parameters = dict.fromkeys(named[p] for p in gathered if storage(p) not in mutated)
        return cls(tuple(parameters), cast("int", gathers[0].args[4])) if parameters else None

    def bind(self, scope: Scope, value_of: Callable[[str], torch.Tensor]) -> bool:
        """Put views of the shared memory into the scope; False if the ranks cannot share memory.

        `value_of` returns a value in the memory format of the step. If a parameter of one rank is not in the shared
        memory, those of all ranks must not be: then the ranks copy them together.
        """
        values = {name: value_of(name) for name in self.names}
        private = [name for name in self.names if values[name] is not scope.shared.get(name)]
        if not private:
            return True
        group_name = sharding_group("dp", self.degree, world().size)
        new = {name: values[name] for name in private if not _fits(scope.shared.get(name), values[name])}
        if new:
            segment = world().map_weights(group_name, sum(map(_padded, new.values())))
            if segment is None:
                return False
            scope.shared.update(_views(segment, new))
            logger.info("%d parameters are shared by ranks %s", len(new), list(segment.ranks))
        group = world().group(group_name)
        index = group.ranks.index(world().rank)
        group.start_barrier("weights").wait()  # no rank runs anything else meanwhile
        for number, name in enumerate(private):
            if number % group.size == index:
                scope.shared[name].copy_(values[name])
        group.start_barrier("weights").wait()
        for name in private:
            scope.put(name, scope.shared[name], is_owned=True)
        return True


def _fits(view: torch.Tensor | None, value: torch.Tensor) -> bool:
    return view is not None and (view.shape, view.stride(), view.dtype) == (
        value.shape,
        value.stride(),
        value.dtype,
    )


def _padded(value: torch.Tensor) -> int:
    return max(-(-value.nbytes // _ALIGNMENT) * _ALIGNMENT, _ALIGNMENT)


def _views(segment: SharedSegment, values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors in the segment, one after the other, with the shapes and strides of these values."""
    views, offset = {}, 0
    for name, value in values.items():
        flat = torch.frombuffer(segment.memory, dtype=value.dtype, count=max(value.numel(), 1), offset=offset)
        view = views[name] = flat.as_strided(value.shape, value.stride())
        world().shared_weights[view] = name
        offset += _padded(value)
    return views
