"""Ops of a parameter server's program, besides the optimizer's updates.

listen_and_serv(endpoint, trainers, mode, blocks, tables)    the server's identity; `Executor.run` serves
g = merge_gradients([g.trainer_0, g.trainer_1])              sync: the mean over the trainers, in their order
g = dc_asgd(g, w, backup, square, lambda, decay)             DC-ASGD: g + lambda · g² · (w - backup)
total = sum_over_servers(x, group)                           sync: for norms of gradients sharded over servers
add_delta(w, delta)                                          geo: w += delta
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

import torch
from torch import Tensor

from argosy.engine.ops.op_spec import OpSpec, declare
from argosy.engine.ps.server import service
from argosy.engine.ps.server.sync import mean

_EPSILON = 1e-7


def _listen(endpoint: str, trainers: int, mode: str, blocks: Sequence[str], tables: Sequence[str]) -> None:
    raise AssertionError("a server's program is run by Executor.run")


def _merge(grads: Sequence[Tensor]) -> Tensor:
    return mean(list(grads), 1.0 / len(grads))


def _compensate(
    grad: Tensor, param: Tensor, backup: Tensor, square: Tensor | None, strength: float, decay: float
) -> Tensor:
    """The paper's update (ICML 2017): the adaptive form divides lambda by the root of the mean square of g."""
    squared = grad * grad
    if square is None:
        return torch.addcmul(grad, squared, param - backup, value=strength)
    square.mul_(decay).add_(squared, alpha=1.0 - decay)
    return grad + strength * (square + _EPSILON).rsqrt() * squared * (param - backup)


def _total(x: Tensor, group: int) -> Tensor:
    return service.current().norms.total(x, group)


def _add(param: Tensor, delta: Tensor) -> None:
    param.add_(delta)


listen_and_serv = declare(
    "listen_and_serv(str endpoint, int trainers, str mode, str[] blocks, str[] tables) -> ()",
    _listen,
    lambda *_: None,
)
merge_gradients = declare(
    "merge_gradients(Tensor[] grads) -> Tensor", _merge, lambda grads: torch.empty_like(grads[0])
)
dc_asgd = declare(
    "dc_asgd(Tensor grad, Tensor param, Tensor backup, Tensor(a!)? square, float strength, float decay) -> Tensor",
    _compensate,
    lambda grad, *_: torch.empty_like(grad),
)
sum_over_servers = declare(
    "sum_over_servers(Tensor x, int group) -> Tensor", _total, lambda x, group: torch.empty_like(x)
)
add_delta = declare("add_delta(Tensor(a!) param, Tensor delta) -> ()", _add, lambda *_: None)
SPECS = (
    OpSpec(listen_and_serv, _listen, has_side_effects=True),
    OpSpec(merge_gradients, _merge),
    OpSpec(dc_asgd, _compensate),
    OpSpec(sum_over_servers, _total),
    OpSpec(add_delta, _add),
)
