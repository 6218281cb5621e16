"""Let batch norms use the statistics of the batches of all ranks.

    before    y, mean, invstd = native_batch_norm(x, w, b)                        of this rank's batch
              update_running_stats(…, mean, invstd, count)
              dx, dw, db = native_batch_norm_backward(dy, x, w, mean, invstd)
    after     y, mean, invstd, total = sync_batch_norm(x, w, b, group)            of all ranks' batches
              update_running_stats(…, mean, invstd, total)
              dx, dw, db = sync_batch_norm_backward(dy, x, w, mean, invstd, total, group)

The numbers are then those of one process with the whole batch, at the price of two small exchanges a norm.
dw and db stay this rank's share: the all_reduce of gradients adds them up. Norms at inference stay as they
are. Paddle's name for it is `sync_batch_norm`.
"""

# SPDX-License-Identifier: Apache-2.0
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import fx

from argosy.engine.errors import ProgramError
from argosy.engine.ir.infer import infer
from argosy.engine.ir.verify import describe
from argosy.engine.ops.sync_batch_norm import sync_batch_norm, sync_batch_norm_backward
from argosy.engine.ops.update_running_stats import update_running_stats
from argosy.engine.passes.base import Pass, Report

aten = torch.ops.aten
_TRAINING = 5  # argument of native_batch_norm
_COUNT = 6  # argument of update_running_stats


@dataclass(frozen=True)
class SyncBatchNorm(Pass):
    """See the module's picture. `ranks` is the size of the group."""

    name: ClassVar[str] = "sync_batch_norm"
    keeps_numerics: ClassVar[bool] = False

    group: str = "dp"
    ranks: int = 1

    def run(self, graph: fx.Graph) -> Report:
        found = graph.find_nodes(op="call_function", target=aten.native_batch_norm.default)
        training = [n for n in found if n.args[_TRAINING]]
        if self.ranks == 1:
            return Report(0, f"one rank: {len(training)} batch norms see the whole batch already")
        readers = [_readers(norm) for norm in training]  # all of them are checked before the first is changed
        for norm, its_readers in zip(training, readers, strict=True):
            _synchronise(graph, norm, its_readers, self.group)
        later = _later_backwards(graph)
        for node, total in later:
            _synchronise_backward(node, total, self.group)
        left = len(found) - len(training)
        text = f"{len(training)} batch norms over {self.ranks} ranks, {left} at inference left"
        text += f"; {len(later)} more backwards of norms that are done already" if later else ""
        return Report(len(training) + len(later), text)


def _readers(norm: fx.Node) -> list[fx.Node]:
    """The nodes that read the norm's statistics; ProgramError if one of them would have to be rewritten."""
    statistics = [item for item in norm.users if item.args[1] in (1, 2)]
    readers = list(dict.fromkeys(user for item in statistics for user in item.users))
    for reader in readers:
        if reader.target not in (update_running_stats, aten.native_batch_norm_backward.default):
            raise ProgramError(
                f"{describe(reader)} reads the batch statistics of {describe(norm)}, as second derivatives of a "
                "batch norm do; that is not there across ranks: turn sync_batch_norm off, or use another norm"
            )
    return readers


def _synchronise(graph: fx.Graph, norm: fx.Node, readers: Sequence[fx.Node], group: str) -> None:
    """Change the nodes in place: the program's variables go on standing for them."""
    x, weight, bias, *_, eps = norm.args
    norm.target, norm.args = sync_batch_norm, (x, weight, bias, eps, group)
    norm._rename("sync_batch_norm")
    # The first three stay the same fake tensors, whose memory later views are known by.
    norm.meta["val"] = (*norm.meta["val"], infer(norm)[3])
    total = _call_after(graph, _last_item(norm), operator.getitem, (norm, 3), "total_count")
    for reader in readers:
        if reader.target is not update_running_stats:
            _synchronise_backward(reader, total, group)
        elif reader.args[_COUNT] != 0:  # torch's unbiased variance; Paddle's biased one needs no count
            number = _call_after(graph, total, aten._local_scalar_dense.default, (total,), "count")
            reader.update_arg(_COUNT, number)


def _later_backwards(graph: fx.Graph) -> list[tuple[fx.Node, fx.Node]]:
    """Backwards that a second `minimize` added for norms that the first had rewritten, and the norms' counts."""
    found = []
    for norm in graph.find_nodes(op="call_function", target=sync_batch_norm):
        item = {user.args[1]: user for user in norm.users}
        readers = item[1].users if 1 in item else ()
        found += [(r, item[3]) for r in readers if r.target is aten.native_batch_norm_backward.default]
    return found


def _synchronise_backward(node: fx.Node, total: fx.Node, group: str) -> None:
    mask: Any
    dy, x, weight, _, _, mean, invstd, _, _, mask = node.args
    node.target, node.args = sync_batch_norm_backward, (dy, x, weight, mean, invstd, total, mask, group)
    node._rename("sync_batch_norm_backward")
    values = zip(node.meta["val"], mask, strict=True)
    node.meta["val"] = tuple(value if wanted else None for value, wanted in values)


def _last_item(norm: fx.Node) -> fx.Node:
    last = norm
    while last.next.target is operator.getitem and last.next.args[0] is norm:
        last = last.next
    return last


def _call_after(graph: fx.Graph, place: fx.Node, target: Any, args: tuple[Any, ...], name: str) -> fx.Node:
    with graph.inserting_after(place):
        made = graph.create_node("call_function", target, args, name=name)
    # clone(for_test=True) takes it out
    made.meta = {"role": place.meta["role"], "source": place.meta["source"], "train_only": True}
    made.meta["val"] = infer(made)
    return made
