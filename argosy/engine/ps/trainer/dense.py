"""Dense variables: gradients are pushed in blocks, values are pulled.

    send ─▶ push, push, …   (small gradients together)      each server replies when it has done the step
    send_barrier ─▶ barrier                                  "that was all of step 7"
    recv, fetch_barrier ─▶ pull after step 7                 ◀─ values, copied into the parameters

All requests of a step are sent before the first reply is awaited. A gradient stays unchanged until its push is
acknowledged: if the server is killed before, the client sends it again to the restarted server.
"""

# SPDX-License-Identifier: Apache-2.0
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from argosy.engine.ps.protocol import messages
from argosy.engine.ps.protocol.slicing import VariableBlock
from argosy.engine.ps.rpc.client import PendingReply
from argosy.engine.ps.trainer.connection import PerThread, TrainerConnection

_PACKED_BYTES = 1 << 18
"""Small gradients for one server are packed into one push of up to this many bytes."""


@dataclass
class _RequestedBlock:
    """A parameter, or a block of it, to be filled by a pull."""

    into: Tensor
    name: str
    server: int


@dataclass
class _DenseState:
    """The gradients that one thread has not sent yet, and the values that it pulls."""

    packed: dict[int, list[tuple[str, float, Tensor]]] = field(default_factory=lambda: defaultdict(list))
    bytes: Counter[int] = field(default_factory=Counter)
    requested: list[_RequestedBlock] = field(default_factory=list)
    sums: dict[str, tuple[int, float, Tensor]] = field(default_factory=dict)
    """async: (server, rate, sum) of blocks whose gradients are summed."""


class Blocks:
    """The dense variables of one trainer."""

    def __init__(self, connection: TrainerConnection) -> None:
        self._connection, self._plan = connection, connection.plan
        self._state = PerThread(_DenseState)

    def initialise(self, values: Mapping[str, Tensor], shared: Mapping[str, Tensor] | None = None) -> None:
        """Send the initial values of the dense variables; initialised servers ignore them.

        `shared`: initial values of variables that every trainer has for itself; server 0 stores them.
        """
        extra = {name: value.detach().contiguous() for name, value in (shared or {}).items()}
        for server in self._connection.servers:
            blocks = list(self._plan.blocks_of(server))
            parts = [_part(values[v.name].detach(), b).contiguous() for v, b in blocks]
            message = messages.Initialise([b.name for _, b in blocks], [] if server else list(extra))
            tensors = [*parts, *([] if server else extra.values())]
            self._connection.start(server, message, tensors).wait("initial values")
        self._connection.is_initialised = True

    def send(
        self, grad: Tensor, rate: float, blocks: Sequence[str], rows: Sequence[int], servers: Sequence[int]
    ) -> None:
        """Push a gradient, split into its blocks."""
        parts = grad.split(list(rows)) if len(blocks) > 1 else [grad]
        for block, part, server in zip(blocks, parts, servers, strict=True):
            if self._plan.merged_steps == 1:
                self._pack(server, block, rate, part)
            else:
                self._accumulate(server, block, rate, part)

    def _accumulate(self, server: int, block: str, rate: float, part: Tensor) -> None:
        sums = self._state.value.sums
        summed = part.clone() if block not in sums else sums.pop(block)[2].add_(part)
        if self._connection.sends_now:
            self._pack(server, block, rate, summed)
        else:
            sums[block] = (server, rate, summed)

    def push_deltas(self, deltas: Mapping[str, Tensor]) -> None:
        """geo: push deltas, which the servers add to their values."""
        for variable in self._plan.dense:
            for block in variable.blocks:
                self._pack(block.server, block.name, 1.0, _part(deltas[variable.name], block))
        self._flush()
        self._connection.wait_acked()

    def send_rest(self) -> None:
        """async: push the sums that this thread has not sent yet."""
        sums = self._state.value.sums
        for block, (server, rate, summed) in sums.items():
            self._pack(server, block, rate, summed)
        sums.clear()
        self._flush()

    def _pack(self, server: int, block: str, rate: float, part: Tensor) -> None:
        local = self._state.value
        local.packed[server].append((block, rate, part.contiguous()))
        local.bytes[server] += part.nbytes
        if local.bytes[server] >= _PACKED_BYTES:
            self._flush_to(server)

    def _flush(self) -> None:
        for server in self._connection.servers:
            self._flush_to(server)

    def _flush_to(self, server: int) -> None:
        local = self._state.value
        packed = local.packed.pop(server, [])
        local.bytes[server] = 0
        if packed:
            names, rates, parts = [p[0] for p in packed], [p[1] for p in packed], [p[2] for p in packed]
            what = f"push of {names[0]}" + (" and others" if len(names) > 1 else "")
            self._connection.push(
                server, messages.Push(self._connection.next_step, names, rates), parts, what
            )

    def end_step(self) -> None:
        """All gradients of this step have been passed to `send`."""
        connection, in_flight = self._connection, self._connection.in_flight
        self._flush()
        if self._plan.is_synchronous:
            for server in connection.servers:
                reply = connection.start(
                    server, messages.Barrier(connection.next_step, in_flight.pushes[server])
                )
                in_flight.pending.append((f"barrier of step {connection.next_step}", reply))
        in_flight.steps += 1

    def recv(self, into: Tensor, blocks: Sequence[str], rows: Sequence[int], servers: Sequence[int]) -> None:
        """Request a parameter, which `fetch` pulls into this tensor."""
        parts = into.split(list(rows)) if len(blocks) > 1 else [into]
        requested = self._state.value.requested
        requested += [_RequestedBlock(*block) for block in zip(parts, blocks, servers, strict=True)]

    @property
    def is_step_incomplete(self) -> bool:
        """True if a step is incomplete: an error has interrupted it."""
        local, in_flight = self._state.value, self._connection.in_flight
        return bool(local.requested or in_flight.pending or in_flight.pushes or any(local.packed.values()))

    def discard_step(self) -> None:
        """Discard the interrupted step."""
        local = self._state.value
        local.requested, local.packed = [], defaultdict(list)
        local.bytes.clear()
        self._connection.discard_sent()

    def fetch(self) -> None:
        """Wait for the step and pull the requested parameters; async: pull in every n-th step."""
        if self._plan.mode == "async" and self._connection.in_flight.steps % self._plan.pull_every:
            self._state.value.requested = []
        self._fetch()

    def _fetch(self) -> None:
        connection, local = self._connection, self._state.value
        requested, local.requested = local.requested, []
        done = (
            connection.next_step
            if connection.in_flight.pending and self._plan.is_synchronous
            else connection.next_step - 1
        )
        if self._plan.mode != "sync":
            connection.wait_acked()  # servers run requests concurrently: a pull could overtake a push
        pulls = self._pull(requested, max(done, 0))
        connection.wait_acked()
        for group, reply in pulls:
            for block, value in zip(group, reply.wait(f"pull of {group[0].name}").tensors, strict=True):
                block.into.copy_(value)
        connection.next_step = done + 1
        connection.in_flight.pushes.clear()

    def pull(self, values: Mapping[str, Tensor]) -> None:
        """Fill these variables with the servers' values."""
        for variable in self._plan.dense:
            names = [block.name for block in variable.blocks]
            self.recv(values[variable.name], names, variable.rows, [b.server for b in variable.blocks])
        self._fetch()

    def _pull(
        self, requested: list[_RequestedBlock], after: int
    ) -> list[tuple[list[_RequestedBlock], PendingReply]]:
        groups: dict[int, list[_RequestedBlock]] = defaultdict(list)
        for block in requested:
            groups[block.server].append(block)
        in_flight = self._connection.in_flight
        if groups:
            done, in_flight.steps_reported = in_flight.steps - in_flight.steps_reported, in_flight.steps
        return [
            (
                group,
                self._connection.start(server, messages.Pull(after, [block.name for block in group], done)),
            )
            for server, group in groups.items()
        ]

    def state(self) -> dict[str, Tensor]:
        """The dense state of all servers, joined under the variable names of a single-process program."""
        parts: dict[str, dict[int, Tensor]] = defaultdict(dict)
        for server in self._connection.servers:
            reply = self._connection.start(server, messages.PullState()).wait("state")
            origins = reply.meta["origins"]
            for name, value in zip(reply.meta["names"], reply.tensors, strict=True):
                if name in origins:
                    whole, first = origins[name]
                    parts[whole].setdefault(first or 0, value.clone())
        return {name: _whole([part for _, part in sorted(shards.items())]) for name, shards in parts.items()}


def _part(value: Tensor, block: VariableBlock) -> Tensor:
    """The rows of a variable that belong to a block."""
    return value if block.is_whole else value[block.first : block.first + block.rows]


def _whole(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
