"""Setting: one combination of the switches that the planner may choose, and how it is written into a strategy.

bucket_mb         fuse_grad_size_in_MB
overlap           sync_nccl_allreduce = False
communicators     nccl_comm_num
hierarchical      use_hierarchical_allreduce, hierarchical_allreduce_algorithm
divides_updates   build_strategy.divide_updates: the ranks of a host divide sums and updates
sharding          sharding: each rank updates a shard and stores only its state
wire_dtype        fp16_allreduce: changes numerics
recompute         recompute with checkpoints = "auto"
"""

# SPDX-License-Identifier: Apache-2.0
import copy
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any, Literal

from argosy.distributed.fleet.distributed_strategy import DistributedStrategy

BUCKETS_MB = (1, 4, 8, 16, 32, 64, 128)
COMMUNICATORS = (1, 2)
Hierarchical = Literal["", "reduce_scatter", "leaders"]
WireDtype = Literal["", "bfloat16", "float16"]


@dataclass(frozen=True)
class Setting:
    """Values of all switches that the planner chooses."""

    bucket_mb: int = 32
    overlap: bool = False
    communicators: int = 1
    hierarchical: Hierarchical = ""
    """The algorithm between hosts; "": a flat all-reduce."""
    divides_updates: bool = True
    sharding: bool = False
    wire_dtype: WireDtype = ""
    """The dtype of gradients in an all-reduce; "": their own."""
    recompute: bool = False

    @classmethod
    def of(cls, strategy: DistributedStrategy) -> "Setting":
        """The setting of a strategy."""
        fused = strategy.effective("fuse_all_reduce_ops")
        hierarchical = strategy.effective("use_hierarchical_allreduce")
        return cls(
            bucket_mb=max(0, strategy.fuse_grad_size_in_MB) if fused else 0,
            overlap=not strategy.sync_nccl_allreduce,
            communicators=strategy.effective("nccl_comm_num"),
            hierarchical=strategy.hierarchical_allreduce_algorithm if hierarchical else "",
            divides_updates=strategy.build_strategy.divide_updates,
            sharding=strategy.sharding,
            wire_dtype=strategy.fp16_allreduce_configs["dtype"] if strategy.fp16_allreduce else "",
            recompute=strategy.recompute,
        )

    def apply_to(self, strategy: DistributedStrategy) -> DistributedStrategy:
        """A copy of the strategy with this setting; what the setting does not change stays as it was assigned."""
        given, changed = Setting.of(strategy), copy.deepcopy(strategy)
        for name in (field.name for field in fields(self)):
            if getattr(self, name) != getattr(given, name):
                for switch, value in self._switches(name):
                    owner = changed.build_strategy if switch in _BUILD else changed
                    setattr(owner, switch, value)
        return changed

    def lines(self, given: "Setting") -> list[str]:
        """Lines for a script that has the strategy of `given`: the assignments that make it this setting."""
        result = []
        for name in (field.name for field in fields(self)):
            if getattr(self, name) != getattr(given, name):
                for switch, value in self._switches(name):
                    owner = "strategy.build_strategy" if switch in _BUILD else "strategy"
                    result.append(f"{owner}.{switch} = {value!r}")
        return result

    def text(self) -> str:
        """On one line, for tables and logs."""
        parts = [f"buckets of {self.bucket_mb} MB" if self.bucket_mb else "a bucket per layer"]
        if self.sharding:
            parts.append("sharding")
        elif self.hierarchical:
            parts.append(
                "hierarchical" if self.hierarchical == "reduce_scatter" else "hierarchical by leaders"
            )
        if self.overlap:
            parts.append("overlap")
        if self.communicators > 1:
            parts.append(f"{self.communicators} communicators")
        if not self.divides_updates:
            parts.append("whole updates")
        parts += [f"{self.wire_dtype} on the wire"] if self.wire_dtype else []
        parts += ["recompute"] if self.recompute else []
        return ", ".join(parts)

    @property
    def changes_numerics(self) -> bool:
        """True: results differ from those of the defaults by more than rounding."""
        return bool(self.wire_dtype)

    def has_state_of(self, other: "Setting") -> bool:
        """True: a running job can switch between the two, because every variable of the scope is the same in both."""
        if self.sharding and other.sharding:  # a shard is rows of a bucket
            return replace(self, overlap=other.overlap) == other
        return self.sharding == other.sharding

    def _switches(self, name: str) -> list[tuple[str, Any]]:
        """The switches of the strategy behind a field."""
        value = getattr(self, name)
        switches: dict[str, list[tuple[str, Any]]] = {
            "bucket_mb": [("fuse_all_reduce_ops", True), ("fuse_grad_size_in_MB", value)],
            "overlap": [("sync_nccl_allreduce", not value)],
            "communicators": [("nccl_comm_num", value)],
            "hierarchical": [
                ("use_hierarchical_allreduce", bool(value)),
                *([("hierarchical_allreduce_algorithm", value)] if value else []),
            ],
            "divides_updates": [("divide_updates", value)],
            "sharding": [("sharding", value)],
            "wire_dtype": [
                ("fp16_allreduce", bool(value)),
                *([("fp16_allreduce_configs", {"dtype": value})] if value else []),
            ],
            "recompute": [
                ("recompute", value),
                *([("recompute_configs", {"checkpoints": "auto"})] if value else []),
            ],
        }
        return switches[name]


_BUILD = ("divide_updates",)


def settings(
    given: Setting,
    ranks: int,
    hosts: int,
    changes_numerics: bool = False,
    changes_state: bool = False,
    bucket_sizes: tuple[int, ...] = BUCKETS_MB,
) -> list[Setting]:
    """The settings that a job of so many ranks may have, `given` first; none twice, and none that has no effect.

    `changes_state`: also those that a running job cannot switch to.
    """
    if ranks == 1:
        return [given]
    found = {given: None}
    for setting in _combinations(given, ranks, hosts, changes_numerics, changes_state, bucket_sizes):
        found[setting] = None
    return list(found)


def _combinations(
    given: Setting,
    ranks: int,
    hosts: int,
    changes_numerics: bool,
    changes_state: bool,
    bucket_sizes: tuple[int, ...],
) -> Iterator[Setting]:
    wires: tuple[WireDtype, ...] = (given.wire_dtype, "bfloat16") if changes_numerics else (given.wire_dtype,)
    shardings = (False, True) if changes_state else (given.sharding,)
    hierarchies: tuple[Hierarchical, ...] = (
        ("", "reduce_scatter", "leaders") if 1 < ranks // hosts < ranks else ("",)
    )
    for bucket_mb, sharding, wire in product(bucket_sizes, shardings, wires):
        base = replace(given, bucket_mb=bucket_mb, sharding=sharding, wire_dtype=wire)
        if sharding:
            yield replace(base, overlap=given.overlap, hierarchical="", communicators=1)
            continue
        for hierarchical, overlap in product(hierarchies, (False, True)):
            plain = replace(base, hierarchical=hierarchical, overlap=overlap, communicators=1)
            if hosts == 1 and not overlap:
                yield replace(plain, divides_updates=True)
                yield replace(plain, divides_updates=False)
                continue
            for communicators in COMMUNICATORS if overlap and hosts > 1 else (1,):
                yield replace(plain, communicators=communicators)
