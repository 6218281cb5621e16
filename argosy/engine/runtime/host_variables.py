"""Parameters and optimizer state that the ranks of a host have once: when they move to shared memory, and back.

    first step      every rank updates its own variables                                     READY on all ranks
    after it        one copy moves to a segment, if the values of all ranks are equal: scope of rank 0   w ──┐
                                                                                        ├──▶ segment
    next steps      each rank updates its shard (passes/divide_updates.py)          scope of rank 1   w ──┘

Nothing else changes for the user. Between steps a rank reads all variables, parameters and state, and no other rank writes
them: an update begins when all ranks have joined the step. What else writes a variable, or hands out its tensor (`load`,
`set`, another program, `Scope.get`), replaces it by a private tensor in the scope of this rank. In the next step the ranks
notice that, go back to private variables and update those, as if they had never shared (collective/host_memory.py).
Later they try to share again: after 1 step, then 2, 4, 8, …
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import fx

from argosy.engine.collective import world
from argosy.engine.collective.host_memory import Status, padded_to_pages
from argosy.engine.collective.shm import SharedSegment
from argosy.engine.log import logger
from argosy.engine.passes.divide_updates import GROUP, divided_variables
from argosy.engine.runtime.scope import Scope


@dataclass(frozen=True)
class HostVariables:
    """The variables of a compiled step whose updates the ranks of a host divide."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, graph: fx.Graph, named: Mapping[fx.Node, str]) -> "HostVariables | None":
        """None if the step divides no updates."""
        names = tuple(dict.fromkeys(named[v] for v in divided_variables(graph)))
        return cls(names) if names else None

    def prepare(self, scope: Scope) -> None:
        """Before a step: tell the other ranks whether this one may share the variables."""
        is_exposed = not scope.exposed.isdisjoint(self.names)
        world().host_memory.is_ready = not is_exposed and scope.host.pause <= 0

    def finish(self, scope: Scope) -> None:
        """After a step: share the variables, or record that the ranks have stopped to."""
        agreed, host = world().host_memory.agreed, scope.host
        if agreed is Status.SHARED:
            return
        host.pause -= 1
        left = [name for name in self.names if host.shared.pop(name, None) is not None]
        if left:
            host.pause, host.next_pause = host.next_pause, 2 * host.next_pause
            logger.info(
                "each rank has its own %s and %d more variables again: a rank has replaced one of them, or handed it out",
                *(left[0], len(left) - 1),
            )
        if agreed is Status.READY:
            self._share(scope)

    def _share(self, scope: Scope) -> None:
        """Move the variables to shared memory; all ranks call it together, with their own values."""
        values = {name: scope.peek(name) for name in self.names}
        segment = world().map_weights(GROUP, sum(map(padded_to_pages, values.values())))
        if segment is None:
            scope.host.pause = scope.host.next_pause = 1 << 62
            return
        views = _views(segment, values)
        group = world().group(GROUP)
        for number, name in enumerate(self.names):
            if number % group.size == segment.index:
                views[name].copy_(values[name])
        group.start_barrier("variables").wait()
        different = [name for name in self.names if not _same_bits(views[name], values[name])]
        num_different = torch.tensor([len(different)])
        group.all_reduce(num_different, what="variables that differ between the ranks")
        if int(num_different):
            scope.host.pause, scope.host.next_pause = scope.host.next_pause, 2 * scope.host.next_pause
            if different:
                logger.info("%d variables, such as %s, differ between the ranks", len(different), different[0])
            return
        for name, view in views.items():
            world().shared_weights[view] = name
            scope.host.shared[name] = view
            scope.put(name, view, is_owned=True)
        logger.info("%d variables are shared by ranks %s", len(views), list(segment.ranks))


def _views(segment: SharedSegment, values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors in the segment, each in its own pages, with the shapes and strides of these values."""
    views, offset = {}, 0
    for name, value in values.items():
        flat = torch.frombuffer(segment.memory, dtype=value.dtype, count=max(value.numel(), 1), offset=offset)
        views[name] = flat.as_strided(value.shape, value.stride())
        offset += padded_to_pages(value)
    return views


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True if all bits are equal, those of NaN as well."""
    x, y = (t.as_strided((t.numel(),), (1,)).view(torch.uint8) for t in (a, b))
    return torch.equal(x, y)
