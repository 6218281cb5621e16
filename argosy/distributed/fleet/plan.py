"""Which passes a strategy asks for, in which order: one list for the program, one for its startup program.

sync_batch_norm · scale_loss_gradient · gather_sparse_gradients · insert_all_reduce · cast_all_reduce ·
fuse_all_reduce · hierarchical · spread_communicators · order_updates
"""

# SPDX-License-Identifier: Apache-2.0
import re

from torch import fx

from argosy.distributed.fleet.distributed_strategy import DistributedStrategy
from argosy.distributed.fleet.unused_switches import is_reduce_mode
from argosy.engine.collective import communicator
from argosy.engine.ir.dtypes import to_dtype
from argosy.engine.ir.program import Program
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.log import logger
from argosy.engine.passes.base import Pass
from argosy.engine.passes.broadcast_startup import BroadcastStartup
from argosy.engine.passes.cast_all_reduce import CastAllReduce
from argosy.engine.passes.fuse_all_reduce import FuseAllReduce
from argosy.engine.passes.fuse_broadcast import FuseBroadcast
from argosy.engine.passes.gather_sparse_gradients import GatherSparseGradients
from argosy.engine.passes.hierarchical import Hierarchical
from argosy.engine.passes.insert_all_reduce import InsertAllReduce
from argosy.engine.passes.order_updates import OrderUpdates
from argosy.engine.passes.reduce_to_owner import ReduceToOwner
from argosy.engine.passes.scale_loss_gradient import ScaleLossGradient
from argosy.engine.passes.spread_communicators import SpreadCommunicators
from argosy.engine.passes.sync_batch_norm import SyncBatchNorm
from argosy.static.build_strategy import BuildStrategy

_Scale = BuildStrategy.GradientScaleStrategy


def training_passes(
    strategy: DistributedStrategy,
    loss: Variable,
    params_grads: list[tuple[Parameter, Variable]],
    ranks: int,
    hosts: int = 1,
    rank: int = 0,
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
    if strategy.fp16_allreduce:
        passes.append(CastAllReduce(to_dtype(strategy.fp16_allreduce_configs["dtype"])))
    if is_reduce_mode(strategy, ranks):
        return [*passes, *_reduce_passes(strategy, params_grads, ranks, rank)]
    block = _block(strategy, ranks, hosts)
    fuses = strategy.effective("fuse_all_reduce_ops")
    if fuses or block:  # what is summed in two stages lies in a flat buffer, be it alone
        most = int(strategy._fuse_grad_size_in_TFLOPS)  # Paddle's name for a number of gradients
        shared_by = f"dp/inner{block}" if block else "dp"
        passes.append(FuseAllReduce(strategy.fuse_grad_size_in_MB, most, not fuses, shared_by))
    if block:
        by_leaders = strategy.hierarchical_allreduce_algorithm == "leaders"
        passes.append(Hierarchical(ranks, block, by_leaders))
    if strategy.effective("nccl_comm_num") > 1:
        passes.append(SpreadCommunicators(strategy.effective("nccl_comm_num")))
    if not strategy.sync_nccl_allreduce:
        passes.append(OrderUpdates())
    return passes


def _reduce_passes(
    strategy: DistributedStrategy, params_grads: list[tuple[Parameter, Variable]], ranks: int, rank: int
) -> list[Pass]:
    """What follows insert_all_reduce if each parameter has an owner."""
    groups = tuple(communicator("dp", number) for number in range(strategy.effective("nccl_comm_num")))
    trained = tuple((p.name, p.program.recorder.placeholder_of[p.value], g.name) for p, g in params_grads)
    # First: the ranks' programs are still the same, and so are the orders that come out.
    passes: list[Pass] = [] if strategy.sync_nccl_allreduce else [OrderUpdates()]
    passes.append(ReduceToOwner(trained, rank, ranks, groups))
    if strategy.build_strategy.fuse_broadcast_ops:
        passes.append(FuseBroadcast())
    return passes


def _block(strategy: DistributedStrategy, ranks: int, hosts: int) -> int:
    """How many ranks sum first, if there are several such blocks and the strategy asks for it; else 0."""
    if not strategy.effective("use_hierarchical_allreduce"):
        return 0
    wanted = strategy.effective("hierarchical_allreduce_inter_nranks")
    block = wanted if wanted > 1 else ranks // hosts
    if 1 < block < ranks:
        return block
    why = (
        f"all {ranks} ranks are one block"
        if block == ranks
        else f"each of {ranks} ranks is a block of its own"
    )
    logger.warning(
        "set hierachical_allreduce=False since you only have %d node%s: %s; hierarchical_allreduce_inter_nranks makes "
        "smaller blocks",
        hosts,
        "" if hosts == 1 else "s",
        why,
    )
    return 0


def startup_passes(startup: Program, names: set[str]) -> list[Pass]:
    """The rewrites of the startup program; `names` are the variables that must be equal on all ranks.

    What is made from others, as a master weight is from its parameter, must be equal too.
    """
    variables = startup.persistables().items()
    made = [(name, v.node) for name, v in variables if name in names or v.node.all_input_nodes]
    return [BroadcastStartup(tuple(made))]


def _seed(loss: Variable) -> fx.Node:
    """What the newest backward begins with; a loss that was differentiated before has loss@GRAD@1 and so on."""
    names = [name for name in loss.program.vars if re.fullmatch(re.escape(loss.name) + r"@GRAD(@\d+)?", name)]
    return loss.program.var(names[-1]).node  # variables are kept in the order in which they came


def _in_order(program: Program, gradients: list[tuple[str, fx.Node]]) -> tuple[tuple[str, fx.Node], ...]:
    """In the order in which backward makes them, so that the first that is ready travels first."""
    place = {node: number for number, node in enumerate(program.graph.nodes)}
    return tuple(sorted(gradients, key=lambda gradient: place[gradient[1]]))
