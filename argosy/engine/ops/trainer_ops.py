"""Ops of a trainer's program that talk to the parameter servers.

    sent  = send(g, rate, blocks, rows, servers)         sends a gradient; overlaps with the following nodes
    rows  = push_rows([ids…], [g…], rate, 1.0, table)    the same for a table: one row per id
    token = send_barrier([sent…])                        the step's gradients are complete
    recv(w, token, blocks, rows, servers)                requests the updated values
    fetch_barrier([w…])                                  waits for them

In sync mode the servers update after the barriers of all trainers, and reply to the requests then. In async mode they
update as gradients arrive, and `send_barrier` only marks the end of the step. `geo_sync` is for Geo-SGD: every
`k_steps` steps it sends the local changes of the parameters and merges those of the other trainers.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

import torch
from torch import Tensor

from argosy.engine.ops.op_spec import OpSpec, declare
from argosy.engine.ps.trainer.trainer import current

Ints = Sequence[int]
Texts = Sequence[str]
Tensors = Sequence[Tensor]


def _send(grad: Tensor, rate: Tensor, blocks: Texts, rows: Ints, servers: Ints) -> Tensor:
    current().blocks.send(grad, rate.item(), blocks, rows, servers)
    return grad


def _push_rows(ids: Tensors, grads: Tensors, rate: Tensor, factor: float, table: str) -> Tensor:
    current().lookups.push_rows(table, ids, grads, rate.item() * factor)
    return rate


def _barrier(sent: Tensors) -> Tensor:
    current().blocks.end_step()
    return torch.empty(0)


def _recv(x: Tensor, token: Tensor | None, blocks: Texts, rows: Ints, servers: Ints) -> Tensor:
    current().blocks.recv(x, blocks, rows, servers)
    return x


def _fetch(xs: Tensors) -> None:
    current().blocks.fetch()


def _lookup(ids: Tensors, table: str, dim: int) -> list[Tensor]:
    return current().lookups.lookup(table, ids)


def _fake_lookup(ids: Tensors, table: str, dim: int) -> list[Tensor]:
    return [batch.new_empty((*batch.shape, dim), dtype=torch.float32) for batch in ids]


def _geo(params: Tensors, names: Texts, k_steps: int) -> None:
    current().geo.step(params, names)


_PLACES = "str[] blocks, int[] rows, int[] servers"
send = declare(f"send(Tensor(a!) grad, Tensor rate, {_PLACES}) -> Tensor(a!)", _send, lambda grad, *_: grad)
push_rows = declare(
    "push_rows(Tensor[] ids, Tensor[] grads, Tensor rate, float factor, str table) -> Tensor",
    _push_rows,
    lambda ids, grads, rate, *_: torch.empty_like(rate),
)
send_barrier = declare("send_barrier(Tensor[] sent) -> Tensor", _barrier, lambda sent: torch.empty(0))
recv = declare(f"recv(Tensor(a!) x, Tensor? token, {_PLACES}) -> Tensor(a!)", _recv, lambda x, *_: x)
fetch_barrier = declare("fetch_barrier(Tensor(a!)[] xs) -> ()", _fetch, lambda xs: None)
lookup_table = declare(
    "distributed_lookup_table(Tensor[] ids, str table, int dim) -> Tensor[]", _lookup, _fake_lookup
)
geo_sync = declare("geo_sync(Tensor(a!)[] params, str[] names, int k_steps) -> ()", _geo, lambda *_: None)
SPECS = (
    OpSpec(send, _send, has_side_effects=True),
    OpSpec(push_rows, _push_rows, has_side_effects=True),
    OpSpec(send_barrier, _barrier, has_side_effects=True),
    OpSpec(recv, _recv),
    OpSpec(fetch_barrier, _fetch, has_side_effects=True),
    OpSpec(lookup_table, _lookup),
    OpSpec(geo_sync, _geo, has_side_effects=True),
)
