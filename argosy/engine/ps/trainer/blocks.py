"""Dense variables: their gradients go out in blocks, their values come back.

    send ─▶ push, push, …   (small gradients together)      each server answers when it has done the step
    send_barrier ─▶ barrier                                  "that was all of step 7"
    recv, fetch_barrier ─▶ pull after step 7                 ◀─ values, copied into the parameters

All of a step's requests are on their way before the first answer is awaited. A gradient is kept, unchanged, until
its push is answered: if the server dies before, the client sends it again to its successor.
"""

# SPDX-License-Identifier: Apache-2.0
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from argosy.engine.ps import messages
from argosy.engine.ps.rpc.client import Reply
from argosy.engine.ps.slicing import Block
from argosy.engine.ps.trainer.connection import Connection, PerThread

_PACKED = 1 << 18
"""Gradients of one server are sent together up to so many bytes."""


@dataclass
class _Want:
    """A parameter, or a part of it, to be filled."""

    into: Tensor
    block: str
    server: int


@dataclass
class _UnderWay:
    """What one thread has not sent yet, and wants."""

    packed: dict[int, list[tuple[str, float, Tensor]]] = field(default_factory=lambda: defaultdict(list))
    bytes: Counter[int] = field(default_factory=Counter)
    wants: list[_Want] = field(default_factory=list)
    sums: dict[str, tuple[int, float, Tensor]] = field(default_factory=dict)
    """async: (server, rate, sum) of blocks whose gradients are added up."""


class Blocks:
    """The dense variables of one trainer."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._plan = connection, connection.plan
        self._under_way = PerThread(_UnderWay)

    def initialise(self, values: Mapping[str, Tensor], kept: Mapping[str, Tensor] | None = None) -> None:
        """Give the servers the first values of the dense variables; those that have values keep them.

        `kept`: what all trainers begin with and no server trains; server 0 keeps it.
        """
        own = {name: value.detach().contiguous() for name, value in (kept or {}).items()}
        for server in self._connection.servers:
            blocks = list(self._plan.blocks_of(server))
            parts = [_part(values[v.name].detach(), b).contiguous() for v, b in blocks]
            message = messages.Initialise([b.name for _, b in blocks], [] if server else list(own))
            tensors = [*parts, *([] if server else own.values())]
            self._connection.start(server, message, tensors).wait("first values")
        self._connection.is_initialised = True

    def send(
        self, grad: Tensor, rate: float, blocks: Sequence[str], rows: Sequence[int], servers: Sequence[int]
    ) -> None:
        """Send a gradient, cut into its blocks."""
        parts = grad.split(list(rows)) if len(blocks) > 1 else [grad]
        for block, part, server in zip(blocks, parts, servers, strict=True):
            if self._plan.merged_steps == 1:
                self._pack(server, block, rate, part)
            else:
                self._add_up(server, block, rate, part)

    def _add_up(self, server: int, block: str, rate: float, part: Tensor) -> None:
        sums = self._under_way.mine.sums
        summed = part.clone() if block not in sums else sums.pop(block)[2].add_(part)
        if self._connection.sends_now:
            self._pack(server, block, rate, summed)
        else:
            sums[block] = (server, rate, summed)

    def send_changes(self, changes: Mapping[str, Tensor]) -> None:
        """geo: add to the servers' values."""
        for variable in self._plan.dense:
            for block in variable.blocks:
                self._pack(block.server, block.name, 1.0, _part(changes[variable.name], block))
        self._flush()
        self._connection.settle()

    def send_rest(self) -> None:
        """async: what this thread has added up and not sent yet."""
        sums = self._under_way.mine.sums
        for block, (server, rate, summed) in sums.items():
            self._pack(server, block, rate, summed)
        sums.clear()
        self._flush()

    def _pack(self, server: int, block: str, rate: float, part: Tensor) -> None:
        mine = self._under_way.mine
        mine.packed[server].append((block, rate, part.contiguous()))
        mine.bytes[server] += part.nbytes
        if mine.bytes[server] >= _PACKED:
            self._flush_to(server)

    def _flush(self) -> None:
        for server in self._connection.servers:
            self._flush_to(server)

    def _flush_to(self, server: int) -> None:
        mine = self._under_way.mine
        packed = mine.packed.pop(server, [])
        mine.bytes[server] = 0
        if packed:
            names, rates, parts = [p[0] for p in packed], [p[1] for p in packed], [p[2] for p in packed]
            what = f"push of {names[0]}" + (" and others" if len(names) > 1 else "")
            self._connection.push(
                server, messages.Push(self._connection.next_step, names, rates), parts, what
            )

    def end_step(self) -> None:
        """All gradients of this step have been given."""
        connection, sent = self._connection, self._connection.sent
        self._flush()
        if self._plan.is_in_step:
            for server in connection.servers:
                reply = connection.start(server, messages.Barrier(connection.next_step, sent.pushes[server]))
                sent.replies.append((f"barrier of step {connection.next_step}", reply))
        sent.steps += 1

    def want(self, into: Tensor, blocks: Sequence[str], rows: Sequence[int], servers: Sequence[int]) -> None:
        """Note that a parameter is wanted; `fetch` gets all of them."""
        parts = into.split(list(rows)) if len(blocks) > 1 else [into]
        wants = self._under_way.mine.wants
        wants += [_Want(*one) for one in zip(parts, blocks, servers, strict=True)]

    @property
    def is_amid_step(self) -> bool:
        """True if a step was begun and not ended: an error has broken it off."""
        mine, sent = self._under_way.mine, self._connection.sent
        return bool(mine.wants or sent.replies or sent.pushes or any(mine.packed.values()))

    def forget_step(self) -> None:
        """The step that was broken off counts for nothing."""
        mine = self._under_way.mine
        mine.wants, mine.packed = [], defaultdict(list)
        mine.bytes.clear()
        self._connection.forget_sent()

    def fetch(self) -> None:
        """Return when the step is done and all that is wanted has come; async: in every n-th step."""
        if self._plan.mode == "async" and self._connection.sent.steps % self._plan.pull_every:
            self._under_way.mine.wants = []
        self._fetch()

    def _fetch(self) -> None:
        connection, mine = self._connection, self._under_way.mine
        wants, mine.wants = mine.wants, []
        done = (
            connection.next_step
            if connection.sent.replies and self._plan.is_in_step
            else connection.next_step - 1
        )
        if self._plan.mode != "sync":
            connection.settle()  # servers handle pulls beside pushes: a pull would overtake one's own push
        pulls = self._pull(wants, max(done, 0))
        connection.settle()
        for group, reply in pulls:
            for want, value in zip(group, reply.wait(f"pull of {group[0].block}").tensors, strict=True):
                want.into.copy_(value)
        connection.next_step = done + 1
        connection.sent.pushes.clear()

    def pull(self, values: Mapping[str, Tensor]) -> None:
        """Fill these variables with what the servers have."""
        for variable in self._plan.dense:
            names = [block.name for block in variable.blocks]
            self.want(values[variable.name], names, variable.rows, [b.server for b in variable.blocks])
        self._fetch()

    def _pull(self, wants: list[_Want], after: int) -> list[tuple[list[_Want], Reply]]:
        groups: dict[int, list[_Want]] = defaultdict(list)
        for want in wants:
            groups[want.server].append(want)
        sent = self._connection.sent
        if groups:
            done, sent.told = sent.steps - sent.told, sent.steps
        return [
            (group, self._connection.start(server, messages.Pull(after, [w.block for w in group], done)))
            for server, group in groups.items()
        ]

    def state(self) -> dict[str, Tensor]:
        """Everything dense that the servers keep, put together under the names of the program of one process."""
        parts: dict[str, dict[int, Tensor]] = defaultdict(dict)
        for server in self._connection.servers:
            answer = self._connection.start(server, messages.State()).wait("state")
            origins = answer.meta["origins"]
            for name, value in zip(answer.meta["names"], answer.tensors, strict=True):
                if name in origins:
                    whole, first = origins[name]
                    parts[whole].setdefault(first or 0, value.clone())
        return {name: _whole([part for _, part in sorted(found.items())]) for name, found in parts.items()}


def _part(value: Tensor, block: Block) -> Tensor:
    """The rows of a variable that are a block."""
    return value if block.is_whole else value[block.first : block.first + block.rows]


def _whole(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
