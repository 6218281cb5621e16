"""Whether a strategy asks for Reduce mode, and which of its switches have no effect in the mode that it asks for."""

# SPDX-License-Identifier: Apache-2.0
from argosy.distributed.fleet.distributed_strategy import DistributedStrategy
from argosy.engine.log import logger
from argosy.static.build_strategy import BuildStrategy

_REDUCE = BuildStrategy.ReduceStrategy.Reduce
_OF_SEVERAL = ("use_hierarchical_allreduce", "fp16_allreduce")
_FUSIONS = ("fuse_all_reduce_ops", "fuse_all_optimizer_ops")


def is_reduce_mode(strategy: DistributedStrategy, ranks: int) -> bool:
    """True if each parameter is updated by one rank and broadcast; one rank alone has nobody to give it to."""
    return ranks > 1 and strategy.build_strategy.reduce_strategy is _REDUCE


def note_ignored(strategy: DistributedStrategy, ranks: int) -> None:
    """Say in the log which switches that the user has set are not used."""
    communicators = strategy.effective("nccl_comm_num")
    if ranks == 1:
        given = [name for name in _OF_SEVERAL if _is_on(strategy, name)]
        given += ["nccl_comm_num"] if communicators > 1 else []
        if given:
            logger.warning(
                "one rank exchanges nothing: %s %s not used",
                ", ".join(given),
                "is" if len(given) == 1 else "are",
            )
    elif communicators > 1 and strategy.sync_nccl_allreduce:
        logger.warning(
            "nccl_comm_num=%d brings nothing with sync_nccl_allreduce=True, which waits for each exchange before the "
            "next one; set strategy.sync_nccl_allreduce=False",
            communicators,
        )
    if is_reduce_mode(strategy, ranks):
        for name in _FUSIONS:
            if _is_on(strategy, name):
                logger.warning(
                    "%s is off under ReduceStrategy.Reduce: every gradient goes to its owner", name
                )
        if _is_on(strategy, "use_hierarchical_allreduce"):
            logger.warning("use_hierarchical_allreduce is not used under ReduceStrategy.Reduce")
        return
    if strategy.build_strategy.reduce_strategy is _REDUCE:
        logger.info("ReduceStrategy.Reduce with one rank is AllReduce: it owns all parameters")
    elif _is_on(strategy, "fuse_broadcast_ops"):
        logger.warning("Currently, fuse_broadcast_ops only works under Reduce mode.")


def _is_on(strategy: DistributedStrategy, name: str) -> bool:
    """True if the user has switched it on; a default does not count."""
    places = (strategy, strategy.build_strategy)
    return any(place.is_assigned(name) and bool(getattr(place, name)) for place in places)
