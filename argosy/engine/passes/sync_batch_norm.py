"""Compute batch norm statistics over the batches of all ranks.

    before    y, mean, invstd = native_batch_norm(x, w, b)                        over this rank's batch
              update_running_stats(…, mean, invstd, count)
              dx, dw, db = native_batch_norm_backward(dy, x, w, mean, invstd)
    after     y, mean, invstd, total = sync_batch_norm(x, w, b, group)            over the batches of all ranks
              update_running_stats(…, mean, invstd, total)
              dx, dw, db = sync_batch_norm_backward(dy, x, w, mean, invstd, total, group)

The results equal those of one process with the whole batch, at the price of two small collectives per norm.
dw and db stay partial sums of this rank: the all-reduce of gradients sums them. Norms in inference mode are left
as they are. Paddle's name for it is `sync_batch_norm`.
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
from argosy.engine.ops.batch_norm import sync_batch_norm, sync_batch_norm_backward, update_running_stats
from argosy.engine.passes.base import Pass, Report

aten = torch.ops.aten
_TRAINING = 5  # argument of native_batch_norm
_COUNT = 6  # argument of update_running_stats


@dataclass(frozen=True)
class SyncBatchNorm(Pass):
    """See the module's picture. `ranks` is the size of the group."""

    name: ClassVar[str] = "sync_batch_norm"

    group: str = "dp"
    ranks: int = 1

    def run(self, graph: fx.Graph) -> Report:
        norms = graph.find_nodes(op="call_function", target=aten.native_batch_norm.default)
        training = [n for n in norms if n.args[_TRAINING]]
        if self.ranks == 1:
            return Report(0, f"one rank: {len(training)} batch norms see the whole batch already")
        readers = [_readers(norm) for norm in training]  # check all of them before the first rewrite
        for norm, its_readers in zip(training, readers, strict=True):
            _synchronise(graph, norm, its_readers, self.group)
        later = _later_backwards(graph)
        for node, total in later:
            _synchronise_backward(node, total, self.group)
        inference = len(norms) - len(training)
        text = (
            f"{len(training)} batch norms over {self.ranks} ranks, {inference} in inference mode left alone"
        )
        text += f"; {len(later)} more backwards of norms that are synchronised already" if later else ""
        return Report(len(training) + len(later), text)


def _readers(norm: fx.Node) -> list[fx.Node]:
    """The nodes that read the norm's statistics; raises ProgramError if one of them is unsupported."""
    statistics = [item for item in norm.users if item.args[1] in (1, 2)]
    readers = list(dict.fromkeys(user for item in statistics for user in item.users))
    for reader in readers:
        if reader.target not in (update_running_stats, aten.native_batch_norm_backward.default):
            raise ProgramError(
                f"{describe(reader)} reads the batch statistics of {describe(norm)}, as second derivatives of a "
                "batch norm do; sync_batch_norm does not support that: turn it off, or use another norm"
            )
    return readers


def _synchronise(graph: fx.Graph, norm: fx.Node, readers: Sequence[fx.Node], group: str) -> None:
    """Rewrite the nodes in place, so that the program's variables stay bound to them."""
    x, weight, bias, *_, eps = norm.args
    norm.target, norm.args = sync_batch_norm, (x, weight, bias, eps, group)
    norm._rename("sync_batch_norm")
    # Keep the first three fake tensors: views of them are recognised by their storage.
    norm.meta["val"] = (*norm.meta["val"], infer(norm)[3])
    total = _call_after(graph, _last_item(norm), operator.getitem, (norm, 3), "total_count")
    for reader in readers:
        if reader.target is not update_running_stats:
            _synchronise_backward(reader, total, group)
        elif reader.args[_COUNT] != 0:  # torch's unbiased variance; Paddle's biased one needs no count
            count = _call_after(graph, total, aten._local_scalar_dense.default, (total,), "count")
            reader.update_arg(_COUNT, count)


def _later_backwards(graph: fx.Graph) -> list[tuple[fx.Node, fx.Node]]:
    """Backwards that a second `minimize` added for norms that the first rewrote, with the norms' counts."""
    backwards = []
    for norm in graph.find_nodes(op="call_function", target=sync_batch_norm):
        item = {user.args[1]: user for user in norm.users}
        readers = item[1].users if 1 in item else ()
        backwards += [(r, item[3]) for r in readers if r.target is aten.native_batch_norm_backward.default]
    return backwards


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
        node = graph.create_node("call_function", target, args, name=name)
    # train_only: clone(for_test=True) removes it
    node.meta = {"role": place.meta["role"], "source": place.meta["source"], "train_only": True}
    node.meta["val"] = infer(node)
    return node
