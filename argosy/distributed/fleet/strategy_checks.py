"""Checks of a strategy: switches that exclude each other, that do not fit the job, or that have no effect in it."""

# SPDX-License-Identifier: Apache-2.0
from argosy.distributed.fleet.distributed_strategy import DistributedStrategy
from argosy.engine.errors import ConfigError
from argosy.engine.log import logger
from argosy.static.strategies import BuildStrategy

_REDUCE = BuildStrategy.ReduceStrategy.Reduce
_EXCLUSIVE = (
    ("amp", "dgc", "DGC compresses 32-bit gradients only"),
    ("fp16_allreduce", "dgc", "DGC has its own wire format"),
    ("localsgd", "adaptive_localsgd", "both control when the parameters are averaged"),
    ("localsgd", "gradient_merge", "both control when the ranks communicate"),
    ("adaptive_localsgd", "gradient_merge", "both control when the ranks communicate"),
    ("localsgd", "fp16_allreduce", "LocalSGD sends no gradients, and 16 bits are too few for parameters"),
    (
        "adaptive_localsgd",
        "fp16_allreduce",
        "LocalSGD sends no gradients, and 16 bits are too few for parameters",
    ),
    ("localsgd", "dgc", "LocalSGD sends no gradients"),
    ("adaptive_localsgd", "dgc", "LocalSGD sends no gradients"),
    ("lars", "lamb", "each replaces the optimizer's update"),
    ("lars", "dgc", "each replaces the optimizer's update"),
    ("lamb", "dgc", "each replaces the optimizer's update"),
    ("gradient_merge", "dgc", "DGC accumulates the gradients itself"),
    ("sharding", "lars", "LARS needs the norms of whole parameters, and a rank updates only rows of them"),
    ("sharding", "lamb", "LAMB needs the norms of whole parameters, and a rank updates only rows of them"),
    ("sharding", "dgc", "DGC sends no dense gradients, which sharding divides between the ranks"),
    ("sharding", "localsgd", "with LocalSGD every rank updates all of its own parameters"),
    ("auto", "dgc", "the planner chooses how gradients are all-reduced, and DGC all-reduces none"),
    ("auto", "localsgd", "the planner chooses how gradients are all-reduced, and LocalSGD all-reduces none"),
    (
        "auto",
        "adaptive_localsgd",
        "the planner chooses how gradients are all-reduced, and LocalSGD all-reduces none",
    ),
    ("sharding", "adaptive_localsgd", "with LocalSGD every rank updates all of its own parameters"),
)
"""Pairs of strategies that exclude each other, and why."""
_ALL_REDUCE_ONLY = {
    "dgc": "with DGC every rank updates every parameter: turn dgc off, or use ReduceStrategy.AllReduce",
    "localsgd": "in LocalSGD every rank updates all parameters: use ReduceStrategy.AllReduce",
    "adaptive_localsgd": "in LocalSGD every rank updates all parameters: use ReduceStrategy.AllReduce",
    "sharding": "both divide the updates between the ranks: use ReduceStrategy.AllReduce, the default",
    "auto": "the planner chooses how gradients are all-reduced: use ReduceStrategy.AllReduce, the default",
}
"""Strategies that exclude ReduceStrategy.Reduce, and why."""
_COLLECTIVE_ONLY = {
    "gradient_merge": "use a_sync_configs k_steps (geo) to communicate less often",
    "localsgd": "use a_sync_configs k_steps (geo) to communicate less often",
    "adaptive_localsgd": "use a_sync_configs k_steps (geo) to communicate less often",
    "lars": "give the optimizer itself, optimizer.LarsMomentum",
    "lamb": "give the optimizer itself, optimizer.Lamb",
    "dgc": "use optimizer.Momentum without it",
    "sharding": "the servers store the optimizer state: turn it off",
    "auto": "it chooses how ranks all-reduce their gradients, and workers send them to servers: turn it off",
}
"""Strategies that a job with parameter servers cannot have, and what to do instead."""
_NOT_WITH_LOOK_AHEAD = (
    "amp",
    "recompute",
    "gradient_merge",
    "localsgd",
    "adaptive_localsgd",
    "lars",
    "lamb",
    "dgc",
    "sharding",
)
_NO_SHARDING_CONFIGS = {
    "mp_degree": "tensor parallelism is not supported with it",
    "pp_degree": "pipeline parallelism is not supported with it",
    "pp_allreduce_in_optimize": "pipeline parallelism is not supported with it",
    "optimize_offload": "the state of the optimizer stays in memory, divided by the number of ranks",
    "segment_anchors": "buckets follow the order of backward; set segment_broadcast_MB for their size",
}
"""Settings of sharding_configs that must keep their defaults, and why."""
_MULTI_RANK_ONLY = (
    "use_hierarchical_allreduce",
    "fp16_allreduce",
    "sharding",
    "dgc",
    "localsgd",
    "adaptive_localsgd",
)


def check_exclusive(strategy: DistributedStrategy) -> None:
    """Raise a ConfigError if two strategies are on that exclude each other."""
    for first, second, why in _EXCLUSIVE:
        if getattr(strategy, first) and getattr(strategy, second):
            raise ConfigError(
                f"strategy.{first} and strategy.{second} are both on; {why}: turn one of them off"
            )


def check_collective(strategy: DistributedStrategy, num_ranks: int, num_hosts: int) -> None:
    """Raise a ConfigError if two switches conflict, or a switch does not fit the size of a collective job."""
    check_exclusive(strategy)
    _check_set_twice(strategy)
    if strategy.recompute and not strategy.recompute_configs["checkpoints"]:
        raise ConfigError(
            "strategy.recompute is on, but strategy.recompute_configs['checkpoints'] is empty; list the "
            "activations to store, use 'auto', or turn recompute off"
        )
    trainers = strategy.build_strategy.num_trainers
    if strategy.build_strategy.is_assigned("num_trainers") and trainers != num_ranks:
        raise ConfigError(
            f"build_strategy.num_trainers is {trainers}, but the job has {num_ranks} ranks; leave it out"
        )
    if strategy.build_strategy.reduce_strategy is _REDUCE:
        _check_reduce_mode(strategy, num_ranks)
    if strategy.dgc and num_ranks > 1 and strategy.effective("use_hierarchical_allreduce"):
        raise ConfigError(
            "strategy.dgc and strategy.use_hierarchical_allreduce are both on; DGC has one all-gather over all ranks: "
            "turn one of them off"
        )
    if strategy.sharding:
        _check_sharding(strategy, num_ranks)
    if strategy.effective("use_hierarchical_allreduce"):
        _check_hierarchy(strategy.effective("hierarchical_allreduce_inter_nranks"), num_ranks, num_hosts)


def check_with_servers(strategy: DistributedStrategy) -> None:
    """Raise a ConfigError if a strategy is on that a job with parameter servers cannot have."""
    for name, remedy in _COLLECTIVE_ONLY.items():
        if getattr(strategy, name):
            raise ConfigError(
                f"strategy.{name} is for collective training, and this job has parameter servers; {remedy}"
            )
    if strategy.amp and strategy.amp_configs["dtype"] == "float16":
        raise ConfigError(
            "strategy.amp with dtype float16 needs loss scaling, which parameter servers do not have; use bfloat16"
        )


def check_look_ahead(strategy: DistributedStrategy) -> None:
    """Raise a ConfigError if a strategy is on that does not work with the optimizer LookAhead."""
    for name in _NOT_WITH_LOOK_AHEAD:
        if getattr(strategy, name):
            raise ConfigError(
                f"strategy.{name} and the optimizer LookAhead do not work together; turn {name} off, or give fleet the "
                "optimizer inside of LookAhead"
            )


def _check_set_twice(strategy: DistributedStrategy) -> None:
    build = strategy.build_strategy
    shared = [name for name in strategy.fields if name in build.fields and name != "sync_batch_norm"]
    for name in shared:
        outer, nested = getattr(strategy, name), getattr(build, name)
        if strategy.is_assigned(name) and build.is_assigned(name) and outer != nested:
            raise ConfigError(
                f"strategy.{name} is {outer!r}, but strategy.build_strategy.{name} is {nested!r}; set only the first"
            )


def _check_reduce_mode(strategy: DistributedStrategy, num_ranks: int) -> None:
    """With ReduceStrategy.Reduce one rank gets the sum of a gradient, and updates its parameter."""
    for name, why in _ALL_REDUCE_ONLY.items():
        if getattr(strategy, name) and (num_ranks > 1 or name != "dgc"):  # one rank compresses nothing
            raise ConfigError(
                f"strategy.{name} and build_strategy.reduce_strategy = Reduce are both on; {why}"
            )
    if strategy.amp and strategy.amp_configs["dtype"] == "float16" and num_ranks > 1:
        raise ConfigError(
            "strategy.amp with dtype float16 and build_strategy.reduce_strategy = Reduce are both on; only its owner "
            "sees that a gradient overflowed: use bfloat16, or ReduceStrategy.AllReduce"
        )


def _check_hierarchy(inner: int, num_ranks: int, num_hosts: int) -> None:
    """Check that `num_ranks` is a multiple of `inner`; an `inner` of 1 or less means the ranks of one host."""
    if inner > 1 and num_ranks > 1 and num_ranks % inner:
        raise ConfigError(
            f"strategy.use_hierarchical_allreduce with hierarchical_allreduce_inter_nranks={inner} does not divide "
            f"{num_ranks} ranks; use a divisor of {num_ranks}, such as the ranks of one host"
        )
    if inner <= 1 and num_ranks % num_hosts:
        raise ConfigError(
            f"strategy.use_hierarchical_allreduce: {num_ranks} ranks do not divide over {num_hosts} hosts; start "
            "as many on each, or set hierarchical_allreduce_inter_nranks"
        )


def _check_sharding(strategy: DistributedStrategy, ranks: int) -> None:
    """Raise a ConfigError unless the settings of sharding fit each other and the job."""
    part = strategy.part("sharding_configs")
    for name, why in _NO_SHARDING_CONFIGS.items():
        if part.is_changed(name):
            raise ConfigError(
                f"strategy.sharding with sharding_configs[{name!r}] = {getattr(part, name)!r} is not supported: {why}; "
                f"leave it at {part.fields[name].default!r}"
            )
    if part.sharding_segment_strategy == "segment_anchors":
        raise ConfigError(
            "sharding_configs['sharding_segment_strategy'] = 'segment_anchors' is not supported: "
            f"{_NO_SHARDING_CONFIGS['segment_anchors']}; use 'segment_broadcast_MB'"
        )
    for level in (strategy, strategy.build_strategy):
        if level.is_assigned("use_hierarchical_allreduce") and level.use_hierarchical_allreduce:
            raise ConfigError(
                "strategy.sharding and strategy.use_hierarchical_allreduce are both on; for several hosts shard inside "
                "a host instead: sharding_configs = {'sharding_degree': ranks of a host, 'hybrid_dp': True}"
            )
        if level.is_assigned("fuse_all_reduce_ops") and not level.fuse_all_reduce_ops:
            raise ConfigError(
                "strategy.sharding needs strategy.fuse_all_reduce_ops = True: it divides the buckets between the ranks"
            )
    sharding_degree(strategy, ranks)


def sharding_degree(strategy: DistributedStrategy, ranks: int) -> int:
    """The number of ranks that share the optimizer state; all of them by default."""
    part = strategy.part("sharding_configs")
    names = [name for name in ("sharding_degree", "sharding_group_size") if part.is_assigned(name)]
    given = {getattr(part, name) for name in names}
    if len(given) > 1:
        raise ConfigError(
            f"sharding_configs['sharding_degree'] is {part.sharding_degree} and ['sharding_group_size'] "
            f"{part.sharding_group_size}; they are two names of one setting: give one of them"
        )
    degree: int = next(iter(given), ranks)
    if ranks == 1:
        return 1
    if part.is_assigned("dp_degree"):
        if names and degree * part.dp_degree != ranks:
            raise ConfigError(
                f"sharding_configs: sharding_degree {degree} x dp_degree {part.dp_degree} is not the number of ranks, "
                f"{ranks}; leave one of them out"
            )
        degree = degree if names else ranks // part.dp_degree
    if ranks % degree:
        raise ConfigError(
            f"sharding_configs: groups of {degree} do not divide {ranks} ranks ({names[0] if names else 'dp_degree'}); "
            f"use a divisor of {ranks}, or leave it out for all ranks"
        )
    if degree == 1:
        raise ConfigError(
            f"strategy.sharding with a degree of 1 shards nothing on {ranks} ranks; use a larger degree, or turn "
            "strategy.sharding off"
        )
    if degree < ranks and not (part.hybrid_dp or part.is_assigned("dp_degree")):
        raise ConfigError(
            f"sharding_configs: {ranks} ranks with sharding_degree {degree} are {ranks // degree} replicas; say so "
            f"with 'hybrid_dp': True (or 'dp_degree': {ranks // degree}), or leave sharding_degree out"
        )
    return degree


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
        if _is_on(strategy, "fuse_all_reduce_ops"):
            logger.warning(
                "fuse_all_reduce_ops is off under ReduceStrategy.Reduce: each gradient is reduced to its owner rank"
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
