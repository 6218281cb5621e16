"""Which passes a strategy asks for, in which order: one list for the program, one for its startup program.

sync_batch_norm · scale_loss_gradient · gather_sparse_gradients · insert_all_reduce · fuse_all_reduce
"""

# SPDX-License-Identifier: Apache-2.0
import re

from torch import fx

from argosy.distributed.fleet.distributed_strategy import DistributedStrategy
from argosy.engine.ir.program import Program
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.passes.base import Pass
from argosy.engine.passes.broadcast_startup import BroadcastStartup
from argosy.engine.passes.fuse_all_reduce import FuseAllReduce
from argosy.engine.passes.gather_sparse_gradients import GatherSparseGradients
from argosy.engine.passes.insert_all_reduce import InsertAllReduce
from argosy.engine.passes.scale_loss_gradient import ScaleLossGradient
from argosy.engine.passes.sync_batch_norm import SyncBatchNorm
from argosy.static.build_strategy import BuildStrategy

_Scale = BuildStrategy.GradientScaleStrategy


def training_passes(
    strategy: DistributedStrategy,
    loss: Variable,
    params_grads: list[tuple[Parameter, Variable]],
    ranks: int,
) -> list[Pass]:
    """The rewrites of a program that `minimize` has given its backward part and its updates."""
    program = loss.program
    gradients = _in_order(program, [(g.name, g.node) for _, g in params_grads])
    placeholder = program.recorder.placeholder_of
    grad_of = {placeholder[p.value]: g.node for p, g in params_grads}
    tables = frozenset(placeholder[p.value] for p, _ in params_grads if p.is_sparse)
    passes: list[Pass] = []
    if strategy.effective("sync_batch_norm"):
        passes.append(SyncBatchNorm(ranks=ranks))
    if strategy.build_strategy.gradient_scale_strategy is _Scale.CoeffNumDevice:
        passes.append(ScaleLossGradient(_seed(loss), ranks))
    if tables:
        passes.append(GatherSparseGradients(ranks=ranks, tables=tables, gradients=grad_of))
    passes.append(InsertAllReduce(gradients, overlap=not strategy.sync_nccl_allreduce))
    if strategy.effective("fuse_all_reduce_ops"):
        most = int(strategy._fuse_grad_size_in_TFLOPS)  # Paddle's name for a number of gradients
        passes.append(FuseAllReduce(strategy.fuse_grad_size_in_MB, most))
    return passes


def startup_passes(startup: Program, names: set[str]) -> list[Pass]:
    """The rewrites of the startup program; `names` are the variables that must be equal on all ranks."""
    made = [(name, v.node) for name, v in startup.persistables().items() if name in names]
    return [BroadcastStartup(tuple(made))]


def _seed(loss: Variable) -> fx.Node:
    """What the newest backward begins with; a loss that was differentiated before has loss@GRAD@1 and so on."""
    names = [name for name in loss.program.vars if re.fullmatch(re.escape(loss.name) + r"@GRAD(@\d+)?", name)]
    return loss.program.var(names[-1]).node  # variables are kept in the order in which they came


def _in_order(program: Program, gradients: list[tuple[str, fx.Node]]) -> tuple[tuple[str, fx.Node], ...]:
    """In the order in which backward makes them, so that the first that is ready travels first."""
    place = {node: number for number, node in enumerate(program.graph.nodes)}
    return tuple(sorted(gradients, key=lambda gradient: place[gradient[1]]))
