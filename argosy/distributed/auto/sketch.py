"""StepSketch: the steps of all settings, from a measured step of one of them; nothing is compiled.

    measured      f f f b b copy b copy │ all_reduce wait update          nodes with their times, without waits
    sketch        computation until each gradient exists; bytes of the gradients; time of the updates
    a setting     f f f b b │ start 1 │ b │ start 2 │ wait 1 · update 1 · wait 2 · update 2

`Search` compiles every setting, which takes a second for each; a running job cannot wait for that. A sketch is a
little less exact: what it proposes is verified.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from torch import fx

from argosy.distributed.auto.setting import Setting
from argosy.distributed.auto.step_traces import CALL_MS, UPDATES, num_mutated
from argosy.distributed.auto.template import Template
from argosy.engine.collective import communicator
from argosy.engine.errors import ConfigError
from argosy.engine.ops import collectives as ops
from argosy.engine.ops import gradient_buckets as buckets
from argosy.engine.ops import host_updates
from argosy.engine.passes.fuse_all_reduce import merged_layers
from argosy.engine.planner.step_trace import Collective, CollectiveKind, Node, StepTrace

_WRITES = frozenset((buckets.copy_into_bucket, buckets.mm_into_bucket, ops.all_reduce))
_COMMUNICATION = frozenset(
    (
        ops.all_reduce,
        ops.all_reduce_fused,
        ops.all_reduce_hierarchical,
        ops.wait,
        buckets.bucket_view,
        buckets.gradient_buffer,
        host_updates.begin_updates,
        host_updates.end_updates,
        host_updates.rank_gradients,
    )
)
_CAST_GB_PER_S = 4.0
"""Of casts for the wire, there and back."""
NodeMs = tuple[fx.Node, float]


@dataclass(frozen=True)
class StepSketch:
    """A step of any setting."""

    ready_ms: tuple[float, ...]
    """By gradient, in the order of backward: the computation from the begin of the step until it exists."""
    gradients: tuple[tuple[str, int], ...]
    """Their names and bytes."""
    computation_ms: float
    update_ms: float
    """Of all parameters, by one rank."""
    divided_ms: float
    """Of a rank's shard, if the ranks of a host divide sums and updates."""
    outside_ms: float
    """The executor's time before the first node."""
    max_gradients: int = 50

    @classmethod
    def of(cls, nodes: Sequence[NodeMs], outside_ms: float, template: Template, ranks: int) -> "StepSketch":
        """The sketch of a measured step: its nodes with their times, without waits. `ranks`: of a host.

        `outside_ms`: the executor's time, without the nodes and their waits. Raises ConfigError if the step shows no
        gradients.
        """
        elapsed = update = divided = 0.0
        written: list[float] = []
        for node, ms in nodes:
            if node.target in UPDATES:
                whole, part = _update_ms(node, ms, ranks)
                update, divided = update + whole, divided + part
            elif node.target not in _COMMUNICATION:
                elapsed += ms
            if node.target in _WRITES:
                written.append(elapsed)
        gradients = tuple(_gradients(template))
        if not written or not gradients:
            raise ConfigError(
                "the compiled step has no node that writes a gradient to be all-reduced, so other settings cannot be "
                "predicted from it; leave strategy.auto out"
            )
        last = len(written) - 1
        ready = [written[min(last, i * len(written) // len(gradients))] for i in range(len(gradients))]
        most = int(template.strategy._fuse_grad_size_in_TFLOPS)
        return cls(tuple(ready), gradients, elapsed, update, divided, outside_ms, most)

    def trace(self, setting: Setting, hosts: int) -> StepTrace:
        """The step of a setting, on so many hosts."""
        parts = merged_layers(self.gradients, setting.bucket_mb, self.max_gradients)
        if hosts == 1 and setting.divides_updates and not setting.overlap:
            return self._divided(setting)
        collectives = [self._collective(setting, i, part) for i, part in enumerate(parts)]
        nodes: list[Node] = []
        done = 0.0
        for part, one in sorted(zip(parts, collectives, strict=True), key=lambda p: self._ready(p[0])):
            ready = max(done, self._ready(part))
            actions = (f"start {one.id}", *(() if setting.overlap else (f"wait {one.id}",)))
            nodes.append(Node(f"until {one.id}", ready - done + _cast_ms(setting, one), actions=actions))
            done = ready
        nodes.append(Node("the rest of backward", self.computation_ms - done, role="backward"))
        total = sum(nbytes for _, nbytes in self.gradients) or 1
        for part, one in zip(parts, collectives, strict=True):
            ms = self.update_ms * sum(self.gradients[i][1] for i in part) / total + CALL_MS
            actions = (f"wait {one.id}",) if setting.overlap else ()
            nodes.append(Node(f"update {one.id}", ms, role="optimize", actions=actions))
        return StepTrace(tuple(nodes), tuple(collectives), before_ms=self.outside_ms, name=setting.text())

    def _ready(self, part: Sequence[int]) -> float:
        return max(self.ready_ms[number] for number in part)

    def _collective(self, setting: Setting, number: int, part: Sequence[int]) -> Collective:
        nbytes = sum(self.gradients[i][1] for i in part) // (2 if setting.wire_dtype else 1)
        group = communicator("dp", number % setting.communicators)
        kind: CollectiveKind = "all_reduce_hierarchical" if setting.hierarchical else "all_reduce"
        by_leaders = setting.hierarchical == "leaders"
        return Collective(f"bucket{number}", kind, nbytes, group, by_leaders=by_leaders)

    def _divided(self, setting: Setting) -> StepTrace:
        barriers = [Collective(name, "host_barrier", 0) for name in ("begin", "end")]
        nodes = [Node("forward and backward", self.computation_ms)]
        for one, ms in zip(barriers, (CALL_MS, self.divided_ms + CALL_MS), strict=True):
            actions = (f"start {one.id}", f"wait {one.id}")
            nodes.append(Node(f"until {one.id}", ms, role="optimize", actions=actions))
        return StepTrace(tuple(nodes), tuple(barriers), before_ms=self.outside_ms, name=setting.text())


def _update_ms(node: fx.Node, ms: float, ranks: int) -> tuple[float, float]:
    """Of a measured update: the time by one rank alone, and of a shard whose gradients it sums."""
    words = 2 * num_mutated(node)
    gradients = node.args[1] if isinstance(node.args[1], list | tuple) else [node.args[1]]
    is_divided = any(cast("fx.Node", g).target is host_updates.rank_gradients for g in gradients)
    factor = (words + ranks) / (words + 1) / ranks
    return (ms / factor, ms) if is_divided else (ms, ms * factor)


def _gradients(template: Template) -> list[tuple[str, int]]:
    """Names and bytes of the gradients, in the order of backward."""
    program = template.program
    place = {node: number for number, node in enumerate(program.graph.nodes)}
    variables = sorted((program.var(g) for _, g in template.reduced), key=lambda v: place[v.node])
    return [(v.name, int(v.value.numel()) * v.value.element_size()) for v in variables]


def _cast_ms(setting: Setting, one: Collective) -> float:
    return 2 * one.nbytes / _CAST_GB_PER_S / 1e6 if setting.wire_dtype else 0.0
