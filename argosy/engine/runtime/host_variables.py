"""One copy of parameters and optimizer state for the ranks of a host: when variables move to shared memory, and back.

    first step      every rank updates its own variables
    after it        if the values of all ranks are equal,      scope of rank 0   w ──┐
                    one copy moves to a segment                                      ├──▶ segment
    next steps      each rank updates its shard                scope of rank 1   w ──┘
                    (passes/divide_updates.py)

Nothing else changes for the user. Between steps a rank may read all variables, and no other rank writes them: an update
begins when all ranks have joined the step. Whatever else writes a variable or hands out its tensor (loading, `set`,
another program, `Scope.get`) replaces it by a private tensor in the scope of this rank. In the next step the ranks
notice that, make their variables private and update them, as if they had never shared them
(collective/host_memory.py). Later they try to share again: after 1 step, then after 2, 4, …, 32.

In mixed precision the 16-bit copies of the weights move together with them, and the divided updates write both.
"""

# SPDX-License-Identifier: Apache-2.0
import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import fx

from argosy.engine.collective import world
from argosy.engine.collective.host_memory import Status, padded_to_pages
from argosy.engine.collective.shm import SharedSegment
from argosy.engine.log import logger
from argosy.engine.passes.divide_updates import GROUP, divided_variables
from argosy.engine.runtime.narrow_copies import CopySpec
from argosy.engine.runtime.scope import Scope


@dataclass(frozen=True)
class HostVariables:
    """The variables of a compiled step whose updates the ranks of a host divide."""

    names: tuple[str, ...]
    copies: tuple[CopySpec, ...] = ()
    """The 16-bit copies of some of them, which the updates write as well."""

    @classmethod
    def of(
        cls, graph: fx.Graph, named: Mapping[fx.Node, str], copies: Sequence[CopySpec]
    ) -> "HostVariables | None":
        """None if the step divides no updates. `copies`: all that the step writes."""
        names = tuple(dict.fromkeys(named[v] for v in divided_variables(graph)))
        return cls(names, tuple(spec for spec in copies if spec.name in names)) if names else None

    @cached_property
    def _copies_key(self) -> int:
        """A number for the copies that the step writes; they differ on ranks that fetch different variables."""
        return int.from_bytes(hashlib.sha256(repr(self.copies).encode()).digest()[:7])

    def prepare(self, scope: Scope) -> None:
        """Before a step: set whether this rank may share the variables, which it sends to the others in the step."""
        is_exposed = not scope.exposed.isdisjoint(self.names)
        memory, names = world().host_memory, [spec.name for spec in self.copies]
        memory.is_ready = not is_exposed and scope.host.pause <= 0
        memory.offer_copies(
            self._copies_key, [(scope.peek(name), scope.copies.value_of(name)) for name in names]
        )

    def finish(self, scope: Scope) -> None:
        """After a step: share the variables, or record that the ranks have stopped to."""
        agreed, host = world().host_memory.agreed, scope.host
        host.pause -= 1
        if agreed is Status.SHARED:
            return
        left = [name for name in self.names if host.shared.pop(name, None) is not None]
        if left:
            host.back_off()
            logger.info(
                "every rank has its own %s and %d more variables again: a rank has replaced or handed out one of them",
                *(left[0], len(left) - 1),
            )
        if agreed is Status.READY:
            self._share(scope)

    def fail(self, scope: Scope) -> None:
        """After a step that has failed: erase the variables if they may be partly updated."""
        memory = world().host_memory
        is_torn = memory.is_updating and memory.agreed is Status.SHARED
        memory.end()
        if is_torn:
            scope.erase(list(self.names))
            logger.error(
                "the step failed while the ranks were updating shared variables, such as %s; %d of them are partly "
                "updated and were erased from the scope: resume from a checkpoint",
                *(self.names[0], len(self.names)),
            )

    def _share(self, scope: Scope) -> None:
        """Move the variables to shared memory; all ranks call it together, with their own values."""
        values = {name: scope.peek(name) for name in self.names}
        with_copy = [spec.name for spec in self.copies] if world().host_memory.has_same_copies else []
        copies = {name: scope.copies.value_of(name) for name in with_copy}
        num_bytes = sum(map(padded_to_pages, (*values.values(), *copies.values())))
        segment = world().map_weights(GROUP, num_bytes)
        if segment is None:
            scope.host.pause = sys.maxsize
            return
        every_view = _views(segment, [*values.values(), *copies.values()])
        views = dict(zip(values, every_view, strict=False))
        narrow = dict(zip(copies, every_view[len(values) :], strict=True))
        group = world().group(GROUP)
        for number, name in enumerate(self.names):
            if number % group.size == segment.index:
                views[name].copy_(values[name])
                if name in narrow:
                    narrow[name].copy_(values[name])
        group.start_barrier("variables").wait()
        different = [name for name in self.names if not _same_bits(views[name], values[name])]
        num_different = torch.tensor([len(different)])
        group.all_reduce(num_different, what="variables that differ between the ranks")
        if int(num_different):
            scope.host.back_off()
            if different:
                logger.info(
                    "%d variables, such as %s, differ between the ranks", len(different), different[0]
                )
            return
        world().host_memory.add(views.values(), [(views[name], copy) for name, copy in narrow.items()])
        for name, view in views.items():
            scope.host.shared[name] = view
            scope.put(name, view, is_owned=True)
        for name, copy in narrow.items():
            scope.copies.share(name, copy, views[name])
        logger.info("%d variables are shared by ranks %s", len(views), list(segment.ranks))


def _views(segment: SharedSegment, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors in the segment, each in its own pages, with the shapes, strides and dtypes of these values."""
    views, offset = [], 0
    for value in values:
        flat = torch.frombuffer(segment.memory, dtype=value.dtype, count=max(value.numel(), 1), offset=offset)
        views.append(flat.as_strided(value.shape, value.stride()))
        offset += padded_to_pages(value)
    return views


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True if all bits are equal, those of NaN as well."""
    x, y = (t.as_strided((t.numel(),), (1,)).view(torch.uint8) for t in (a, b))
    return torch.equal(x, y)
