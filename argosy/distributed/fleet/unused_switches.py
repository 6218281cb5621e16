"""Whether a strategy selects Reduce mode, and warnings about switches without effect in the selected mode."""

# SPDX-License-Identifier: Apache-2.0
from argosy.distributed.fleet.distributed_strategy import DistributedStrategy
from argosy.engine.log import logger
from argosy.static.build_strategy import BuildStrategy

_REDUCE = BuildStrategy.ReduceStrategy.Reduce
_MULTI_RANK_ONLY = (
    "use_hierarchical_allreduce",
    "fp16_allreduce",
    "sharding",
    "dgc",
    "localsgd",
    "adaptive_localsgd",
)
_FUSIONS = ("fuse_all_reduce_ops", "fuse_all_optimizer_ops")


def is_reduce_mode(strategy: DistributedStrategy, ranks: int) -> bool:
    """True if one rank updates each parameter and broadcasts it; always False for a single rank."""
    return ranks > 1 and strategy.build_strategy.reduce_strategy is _REDUCE


def warn_ignored(strategy: DistributedStrategy, ranks: int) -> None:
    """Warn about switches that the user turned on and that have no effect."""
    communicators = strategy.effective("nccl_comm_num")
    if ranks == 1:
        given = [name for name in _MULTI_RANK_ONLY if _is_on(strategy, name)]
        given += ["nccl_comm_num"] if communicators > 1 else []
        if given:
            logger.warning(
                "the job has one rank and no collectives: %s %s not used",
                ", ".join(given),
                "is" if len(given) == 1 else "are",
            )
    elif communicators > 1 and strategy.sync_nccl_allreduce:
        logger.warning(
            "nccl_comm_num=%d has no effect with sync_nccl_allreduce=True, which waits for each all-reduce before the "
            "next one; set strategy.sync_nccl_allreduce=False",
            communicators,
        )
    if strategy.sharding and ranks > 1 and _is_on(strategy, "sync_nccl_allreduce"):
        logger.warning(
            "sync_nccl_allreduce is not used with strategy.sharding: reduce-scatters overlap with backward"
        )
    if is_reduce_mode(strategy, ranks):
        for name in _FUSIONS:
            if _is_on(strategy, name):
                logger.warning(
                    "%s is off under ReduceStrategy.Reduce: each gradient is reduced to its owner rank",
                    name,
                )
        if _is_on(strategy, "use_hierarchical_allreduce"):
            logger.warning("use_hierarchical_allreduce is not used under ReduceStrategy.Reduce")
        return
    if strategy.build_strategy.reduce_strategy is _REDUCE:
        logger.info("ReduceStrategy.Reduce with one rank is AllReduce: it owns all parameters")
    elif _is_on(strategy, "fuse_broadcast_ops"):
        logger.warning("Currently, fuse_broadcast_ops only works under Reduce mode.")


def _is_on(strategy: DistributedStrategy, name: str) -> bool:
    """True if the user assigned it and it is on; a default does not count."""
    levels = [level for level in (strategy, strategy.build_strategy) if name in level.fields]
    return any(level.is_assigned(name) and bool(getattr(level, name)) for level in levels)
