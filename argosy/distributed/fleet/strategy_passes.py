"""The passes of a strategy, in order: one list for the main program, one for the startup program.

sync_batch_norm · scale_loss_gradient · gather_sparse_gradients · dgc · insert_all_reduce · cast_all_reduce ·
fuse_all_reduce · hierarchical · spread_communicators · order_updates · shard_optimizer

With localsgd: sync_batch_norm · average_parameters · fuse_all_reduce · hierarchical · spread_communicators ·
order_updates
"""

# SPDX-License-Identifier: Apache-2.0
from torch import fx

from argosy.distributed.fleet.distributed_strategy import DistributedStrategy
from argosy.distributed.fleet.strategy_checks import is_reduce_mode, sharding_degree
from argosy.engine.collective import communicator, sharding_group
from argosy.engine.errors import ConfigError
from argosy.engine.ir.dtypes import to_dtype
from argosy.engine.ir.program import Program
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.log import logger
from argosy.engine.passes.autocast import Autocast, narrow_nodes
from argosy.engine.passes.average_parameters import AverageParameters
from argosy.engine.passes.base import Pass
from argosy.engine.passes.broadcast_startup import BroadcastStartup
from argosy.engine.passes.cast_all_reduce import CastAllReduce
from argosy.engine.passes.dgc import CompressGradients
from argosy.engine.passes.fuse_all_reduce import FuseAllReduce
from argosy.engine.passes.fuse_broadcast import FuseBroadcast
from argosy.engine.passes.gather_sparse_gradients import GatherSparseGradients
from argosy.engine.passes.hierarchical import Hierarchical
from argosy.engine.passes.insert_all_reduce import InsertAllReduce
from argosy.engine.passes.order_updates import OrderUpdates
from argosy.engine.passes.reduce_to_owner import ReduceToOwner
from argosy.engine.passes.scale_loss_gradient import ScaleLossGradient
from argosy.engine.passes.shard_optimizer import ShardOptimizer
from argosy.engine.passes.spread_communicators import SpreadCommunicators
from argosy.engine.passes.sync_batch_norm import SyncBatchNorm
from argosy.optimizer.dgc_momentum import DGCMomentum
from argosy.static.strategies import BuildStrategy

_Scale = BuildStrategy.GradientScaleStrategy


def training_passes(
    strategy: DistributedStrategy,
    program: Program,
    params_grads: list[tuple[Parameter, Variable]],
    ranks: int,
    hosts: int = 1,
    rank: int = 0,
) -> list[Pass]:
    """The passes for a main program to which `minimize` has added backward and updates."""
    compress = _compression(strategy, program)
    compressed = {g.name for g in compress.gradients} if compress else set()
    gradients = _in_order(program, [(g.name, g.node) for _, g in params_grads if g.name not in compressed])
    placeholder = program.recorder.placeholder_of
    grad_of = {placeholder[p.value]: g.node for p, g in params_grads}
    tables = frozenset(placeholder[p.value] for p, _ in params_grads if p.is_sparse)
    passes: list[Pass] = []
    if strategy.effective("sync_batch_norm"):
        passes.append(SyncBatchNorm(ranks=ranks))
    if strategy.build_strategy.gradient_scale_strategy is _Scale.CoeffNumDevice:
        passes += [ScaleLossGradient(seed, ranks) for seed in _seeds(program, params_grads)]
    if tables:
        passes.append(GatherSparseGradients(ranks=ranks, tables=tables, gradients=grad_of))
    if compress is not None:
        passes.append(compress)
    # Sharded updates begin after the last backward node, when no rank of the host reads the weights any more.
    overlap = strategy.sharding or not strategy.sync_nccl_allreduce
    passes.append(InsertAllReduce(gradients, overlap=overlap))
    if strategy.fp16_allreduce:
        passes.append(CastAllReduce(to_dtype(strategy.fp16_allreduce_configs["dtype"])))
    elif isinstance(autocast := program.build.autocast, Autocast) and autocast.is_pure:
        narrow = narrow_nodes(program.graph, autocast, [node for _, node in gradients])
        passes.append(CastAllReduce(autocast.dtype, frozenset(n for n, node in gradients if node in narrow)))
    if is_reduce_mode(strategy, ranks):
        return [*passes, *_reduce_passes(strategy, params_grads, ranks, rank)]
    if strategy.sharding:
        return [*passes, *_sharding_passes(strategy, ranks, rank)]
    return [*passes, *_all_reduce_passes(strategy, ranks, hosts)]


def averaging_passes(
    strategy: DistributedStrategy, average: AverageParameters, ranks: int, hosts: int = 1
) -> list[Pass]:
    """The passes for a main program whose ranks average parameters instead of summing gradients."""
    passes: list[Pass] = [SyncBatchNorm(ranks=ranks)] if strategy.effective("sync_batch_norm") else []
    return [*passes, average, *_all_reduce_passes(strategy, ranks, hosts)]


def _all_reduce_passes(strategy: DistributedStrategy, ranks: int, hosts: int) -> list[Pass]:
    """How the all-reduces are grouped, sent and ordered."""
    passes: list[Pass] = []
    block = _block(strategy, ranks, hosts)
    fuses = strategy.effective("fuse_all_reduce_ops")
    if fuses or block:  # a hierarchical all-reduce needs a flat buffer, even of one gradient
        most = int(strategy._fuse_grad_size_in_TFLOPS)  # Paddle's name for a number of gradients
        shared_by = f"dp/intra{block}" if block else "dp"
        passes.append(FuseAllReduce(strategy.fuse_grad_size_in_MB, most, not fuses, shared_by))
    if block:
        by_leaders = strategy.hierarchical_allreduce_algorithm == "leaders"
        passes.append(Hierarchical(ranks, block, by_leaders))
    if strategy.effective("nccl_comm_num") > 1:
        passes.append(SpreadCommunicators(strategy.effective("nccl_comm_num")))
    if not strategy.sync_nccl_allreduce:
        passes.append(OrderUpdates())
    return passes


def _compression(strategy: DistributedStrategy, program: Program) -> CompressGradients | None:
    """The pass for the gradients that a DGCMomentum compresses, if there are any."""
    calls = program.training.optimizer_calls
    optimizer = calls[-1].optimizer if calls else None
    if not isinstance(optimizer, DGCMomentum):
        return None
    size = strategy.fuse_grad_size_in_MB if strategy.effective("fuse_all_reduce_ops") else 0
    return optimizer.compression(program, memory_mb=size, overlap=not strategy.sync_nccl_allreduce)


def _sharding_passes(strategy: DistributedStrategy, ranks: int, rank: int) -> list[Pass]:
    """The passes after insert_all_reduce if each rank updates a shard of every bucket."""
    degree = sharding_degree(strategy, ranks)
    most = int(strategy._fuse_grad_size_in_TFLOPS)
    passes: list[Pass] = [
        FuseAllReduce(_bucket_mb(strategy), most, shared_by=sharding_group("dp", degree, ranks))
    ]
    if strategy.effective("nccl_comm_num") > 1:
        passes.append(SpreadCommunicators(strategy.effective("nccl_comm_num")))
    shares_weights = strategy.sharding_configs["shared_weights"]
    # First, while the programs of the ranks are still equal, so that all ranks get the same order.
    return [*passes, OrderUpdates(), ShardOptimizer(rank, ranks, degree, shares_weights)]


def _bucket_mb(strategy: DistributedStrategy) -> float:
    """The size of a bucket, the unit of reduce-scatter and all-gather."""
    part = strategy.part("sharding_configs")
    for name in ("segment_broadcast_MB", "fuse_broadcast_MB"):  # the names of 2.1 and 2.0
        if part.is_assigned(name):
            return float(getattr(part, name))
    return float(strategy.fuse_grad_size_in_MB)


def _reduce_passes(
    strategy: DistributedStrategy, params_grads: list[tuple[Parameter, Variable]], ranks: int, rank: int
) -> list[Pass]:
    """The passes after insert_all_reduce in Reduce mode, where one rank owns each parameter."""
    groups = tuple(communicator("dp", number) for number in range(strategy.effective("nccl_comm_num")))
    trained = tuple((p.name, p.program.recorder.placeholder_of[p.value], g.name) for p, g in params_grads)
    # First, while the programs of the ranks are still equal, so that all ranks get the same order.
    passes: list[Pass] = [] if strategy.sync_nccl_allreduce else [OrderUpdates()]
    passes.append(ReduceToOwner(trained, rank, ranks, groups))
    if strategy.build_strategy.fuse_broadcast_ops:
        passes.append(FuseBroadcast())
    return passes


def _block(strategy: DistributedStrategy, ranks: int, hosts: int) -> int:
    """The number of ranks in the inner all-reduce; 0 if the all-reduce is not hierarchical."""
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
    """The passes for the startup program; `names` are the variables that must be equal on all ranks.

    Variables computed from others (a master weight from its parameter) must be equal too.
    """
    variables = startup.persistables().items()
    to_broadcast = [(name, v.node) for name, v in variables if name in names or v.node.all_input_nodes]
    return [BroadcastStartup(tuple(to_broadcast))]


def _seeds(program: Program, params_grads: list[tuple[Parameter, Variable]]) -> list[fx.Node]:
    """The nodes loss@GRAD where the backward passes of these gradients start, without duplicates."""
    seeds: dict[str, None] = {}
    for parameter, gradient in params_grads:
        names = program.training.seeds.get(gradient.name, ())
        if not names:
            raise ConfigError(
                f"the gradient {gradient.name!r} of {parameter.name!r} cannot be divided by the number of ranks: no "
                "backward pass seeded with ones computes it (target_gradients was given, or it is not the gradient of "
                "a loss); use minimize(loss), or gradients(targets, inputs) without target_gradients"
            )
        seeds |= dict.fromkeys(names)
    return [program.var(name).node for name in seeds]


def _in_order(program: Program, gradients: list[tuple[str, fx.Node]]) -> tuple[tuple[str, fx.Node], ...]:
    """Sort the gradients in the order of backward, so that the first one ready is reduced first."""
    position = {node: number for number, node in enumerate(program.graph.nodes)}
    return tuple(sorted(gradients, key=lambda gradient: position[gradient[1]]))
