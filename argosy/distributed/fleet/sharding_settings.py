"""strategy.sharding: how many ranks share the optimizer state, and which settings are supported."""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine.errors import ConfigError
from argosy.framework.strategy_settings import Settings
from argosy.static.build_strategy import BuildStrategy

_UNSUPPORTED = {
    "mp_degree": "tensor parallelism is not supported with it",
    "pp_degree": "pipeline parallelism is not supported with it",
    "pp_allreduce_in_optimize": "pipeline parallelism is not supported with it",
    "optimize_offload": "the state of the optimizer stays in memory, divided by the number of ranks",
    "segment_anchors": "buckets follow the order of backward; set segment_broadcast_MB for their size",
}
"""Settings of sharding_configs that must keep their defaults, and why."""


def check_sharding(strategy: Settings, ranks: int) -> None:
    """Raise a ConfigError unless the settings of sharding fit each other and the job."""
    part = strategy.part("sharding_configs")
    for name, why in _UNSUPPORTED.items():
        if part.is_changed(name):
            raise ConfigError(
                f"strategy.sharding with sharding_configs[{name!r}] = {getattr(part, name)!r} is not supported: {why}; "
                f"leave it at {part.fields[name].default!r}"
            )
    if part.sharding_segment_strategy == "segment_anchors":
        raise ConfigError(
            "sharding_configs['sharding_segment_strategy'] = 'segment_anchors' is not supported: "
            f"{_UNSUPPORTED['segment_anchors']}; use 'segment_broadcast_MB'"
        )
    if strategy.build_strategy.reduce_strategy is BuildStrategy.ReduceStrategy.Reduce:
        raise ConfigError(
            "strategy.sharding and build_strategy.reduce_strategy = Reduce are both on; both divide the updates "
            "between the ranks: use ReduceStrategy.AllReduce, the default"
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


def sharding_degree(strategy: Settings, ranks: int) -> int:
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


def bucket_mb(strategy: Settings) -> float:
    """The size of a bucket, the unit of reduce-scatter and all-gather."""
    part = strategy.part("sharding_configs")
    for name in ("segment_broadcast_MB", "fuse_broadcast_MB"):  # the names of 2.1 and 2.0
        if part.is_assigned(name):
            return float(getattr(part, name))
    return float(strategy.fuse_grad_size_in_MB)
