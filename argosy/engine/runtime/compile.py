"""Compile a program for given fetches: prune dead nodes, run passes, schedule, generate code."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, cast

import sympy
import torch
from torch import fx

from argosy.engine import kernels
from argosy.engine.collective import world
from argosy.engine.errors import FetchError, ScopeError
from argosy.engine.ir.blocks import BlockCall
from argosy.engine.ir.build import Build, BuildPass
from argosy.engine.ir.effects import (
    is_collective,
    is_persistent,
    is_random,
    live_nodes,
    mutated_inputs,
    storage,
)
from argosy.engine.ir.gc_pause import paused_gc
from argosy.engine.ir.liveness import SizeOf
from argosy.engine.ir.names import names_of_copies
from argosy.engine.ir.periods import condition_text, conditions, inactive
from argosy.engine.ir.program import Program
from argosy.engine.ir.roles import TrainerRole
from argosy.engine.ir.show import op_name, type_text
from argosy.engine.ir.size_conditions import FastCheck
from argosy.engine.ir.symbols import Symbols
from argosy.engine.ir.variable import Variable
from argosy.engine.log import logger
from argosy.engine.ops.collectives import all_reduce, all_reduce_fused, reduce, wait
from argosy.engine.ops.sharding import reduce_scatter
from argosy.engine.passes import FUSION_NAMES, default_fusions, default_passes
from argosy.engine.passes.base import Pass, run_passes
from argosy.engine.passes.divide_updates import GROUP, DivideChoice, DivideUpdates, divisible
from argosy.engine.passes.fuse_optimizer import FuseOptimizer
from argosy.engine.passes.sum_in_updates import SumInUpdates
from argosy.engine.ps.trainer import trainer
from argosy.engine.runtime.codegen import Span, Step, generate
from argosy.engine.runtime.gathers import gathered_parameters, insert_awaits
from argosy.engine.runtime.host_variables import HostVariables
from argosy.engine.runtime.inductor import with_regions
from argosy.engine.runtime.narrow_copies import CopySpec
from argosy.engine.runtime.peak_memory import MemoryProfile, memory_of
from argosy.engine.runtime.run_record import run_record
from argosy.engine.runtime.scope import Scope
from argosy.engine.runtime.shared_weights import SharedNames

CPU = torch.device("cpu")
_NOT_WITH_INDUCTOR = frozenset({"in_place", "rematerialize", "choose_kernels", *FUSION_NAMES})
"""Passes that are off with Inductor unless they are asked for: it reuses memory itself, merges common subexpressions,
fuses, and optimizes ATen's convolutions."""


@dataclass(frozen=True)
class Feed:
    """The type of a feed."""

    name: str
    dtype: torch.dtype
    sizes: tuple[int | sympy.Expr, ...]
    """A symbol is a size that may vary; of a variable that the program computes, also an expression of symbols."""
    is_mutated: bool = False
    """True: the step mutates it, so the executor passes a copy."""


@dataclass(frozen=True)
class Label:
    """How a node is shown in a printed program."""

    name: str
    role: str
    op: str
    kind: str
    """float32[N, 10]"""
    source: str


@dataclass(frozen=True)
class TimedStep:
    """A step that records when each of its nodes ran."""

    step: Step
    spans: list[Span]
    """Extended by every run."""
    labels: tuple[Label, ...]
    """The labels of the nodes, in the order of the generated lines."""


@dataclass
class Compiled:
    """A compiled step, with its inputs and outputs."""

    step: Step
    generate: Callable[[Callable[[Span], None] | None], Step]
    """Generates the step's code; given a callback, with a clock around every node."""
    label: Callable[[fx.Node], Label]
    memory: MemoryProfile
    feeds: tuple[Feed, ...]
    states: tuple[str, ...]
    memory_formats: tuple[torch.memory_format, ...]
    copies: tuple[CopySpec, ...]
    """16-bit copies of weights, the step's last arguments."""
    fetched: tuple[str, ...]
    copied: tuple[bool, ...]
    """Which fetches alias memory of the scope, and must be copied before the next run mutates it."""
    initialized: tuple[str, ...]
    """Variables of the scope that the step creates: those of a startup program."""
    is_random: bool
    """True: the step draws random numbers."""
    recorded: tuple[fx.Node, ...] = ()
    """The recorded nodes that it was compiled from."""
    trains: bool = False
    """True: the step has updates of an optimizer."""
    shared: SharedNames | None = None
    """The parameters that the ranks of a host share."""
    host: HostVariables | None = None
    """The variables whose updates the ranks of a host divide."""
    awaited: frozenset[str] = frozenset()
    """The parameters whose all-gathers the step awaits itself, before it reads them."""
    mutated: frozenset[str] = frozenset()
    """Variables of the scope that the step mutates."""
    schedule: tuple[str, ...] = ()
    """The collectives that the step starts, in order, as text."""
    may_fuse_updates: bool = False
    """True: the updates are fused if Argosy's kernels are available."""
    runs: int = 0
    """The number of completed runs."""
    checked_sizes: set[tuple[tuple[sympy.Symbol, int], ...]] = field(default_factory=set)
    """The sizes of feeds that were checked against the program's assumptions."""
    fits: FastCheck | None = None
    """Of a program from a file: a fast test of whether the results for some sizes fit the machine's memory."""
    _bound: tuple[Scope, int, list[torch.Tensor]] | None = None

    def check_states(self, scope: Scope) -> None:
        """Raise ScopeError if a variable has no value."""
        for name in self.states:
            if scope.find(name) is None:
                raise ScopeError(_missing_state(name))

    def state_values(self, scope: Scope) -> list[torch.Tensor]:
        """The scope's tensors in the order of the step's arguments, in the memory formats that it needs.

        If the ranks share parameters, all of them call it together before a step.
        """
        if self._bound is None or self._bound[0] is not scope or self._bound[1] != scope.version:
            formats = dict(zip(self.states, self.memory_formats, strict=True))
            shared: tuple[str, ...] = ()
            if self.shared is not None and self.shared.bind(
                scope, lambda n: read_state(scope, n, formats[n])
            ):
                shared = self.shared.names
            private = self.mutated.difference(shared, self._divided_in(scope, formats))
            values = {n: read_state(scope, n, formats[n], is_private=n in private) for n in self.states}
            if any(scope.is_shared(n) and v is not scope.peek(n) for n, v in values.items()):
                return list(values.values())  # converted copies of shared memory, which other ranks change
            self._bound = (scope, scope.version, list(values.values()))
        return self._bound[2]

    def await_gathers(self, states: Sequence[torch.Tensor]) -> None:
        """Before a run: wait for all-gathers of an earlier step that this one does not await itself."""
        if len(world().gathers):
            named = zip(self.states, states, strict=True)
            world().gathers.wait_for(value for name, value in named if name not in self.awaited)

    def await_exposed(self, scope: Scope) -> None:
        """After a run: wait for the all-gathers of parameters that user code may read at any time."""
        if exposed := self.awaited & scope.exposed:
            world().gathers.wait_for(scope.peek(name) for name in exposed)

    def _divided_in(self, scope: Scope, formats: Mapping[str, torch.memory_format]) -> list[str]:
        """The variables that the ranks of a host may update in shared memory: those in the step's memory format."""
        names = () if self.host is None else self.host.names
        return [n for n in names if n in scope and has_format(scope.peek(n), formats[n])]

    def copies_for(
        self, scope: Scope, states: Sequence[torch.Tensor], is_written_elsewhere: bool
    ) -> AbstractContextManager[list[torch.Tensor]]:
        """Around a run: the 16-bit copies of weights. `is_written_elsewhere`: another thread writes weights."""
        sources = dict(zip(self.states, states, strict=True)) if self.copies else {}
        names = [spec.name for spec in self.copies]
        untracked = [
            n
            for n in names
            if is_written_elsewhere or n in scope.exposed or sources[n] is scope.shared.get(n)
        ]
        mutated = [states[place] for place in self._mutated_places]
        memory = world().host_memory
        return scope.copies.running(
            *(self.copies, sources, mutated, frozenset(untracked)),
            are_complete=lambda: self.host is None or memory.copies_are_complete,
        )

    @cached_property
    def _mutated_places(self) -> list[int]:
        return [place for place, name in enumerate(self.states) if name in self.mutated]

    @cached_property
    def timed(self) -> TimedStep:
        """The same step for a timeline, generated at first use."""
        spans: list[Span] = []
        step = self.generate(spans.append)
        return TimedStep(step, spans, tuple(self.label(node) for node in step.nodes))


@paused_gc()
def compile_program(
    program: Program,
    fetches: Sequence[Variable],
    check: Callable[[fx.Node, Any], None] | None = None,
    device: torch.device = CPU,
    with_updates: bool = True,
    build: Build | None = None,
    due: frozenset[str] = frozenset(),
    sizes: Mapping[sympy.Symbol, int] | None = None,
    shares_memory: bool | None = None,
) -> Compiled:
    """Compile for these fetches; `build` defaults to the program's own. `sizes` of feeds to plan memory for.

    `check(node, value)`, if given, is called after every node. `due`: the periods of the program that are due; nodes of
    other periods are removed. `shares_memory`: whether all ranks share the memory of one host; None: as this job's.
    """
    began = time.perf_counter()
    build = build or program.build
    removed = inactive(program.graph, due) if program.training.periods else set()
    fetch_nodes = [_fetched_node(program, v, removed) for v in fetches]
    _check_owned(program.graph, fetches)
    initialized = {name: v.node for name, v in program.persistables().items() if _is_initialized(program, v)}
    choice = _divisible(program, build, device, shares_memory)
    results = [*fetch_nodes, *initialized.values()]
    recorded = _live_nodes(program.graph, set(results), with_updates, removed)
    lowered = _lower(
        program, recorded, results, build, device, choice, sizes or {}, is_checked=check is not None
    )
    ordered, named, copy_of = lowered.ordered, lowered.named, lowered.copy_of
    constants = {name: value.to(device) for name, value in program.recorder.constants.items()}
    generate_step = lowered.generator(constants, check)
    mutated = {storage(source) for node in ordered for source in mutated_inputs(node)}
    persistent = lowered.persistent(initialized.values())
    copy_specs = tuple(_copy_spec(n, named) for n in lowered.copies)
    step = generate_step(None)
    _log_compiled(program, fetches, len(ordered), time.perf_counter() - began)
    # No reference to the program: the executor's cache is weak.
    label = partial(_label, named, program.symbols)
    return Compiled(
        step=step,
        generate=generate_step,
        label=label,
        memory=_memory(program, ordered, lowered.outputs, named, label),
        feeds=tuple(feed_of(program, named[n], storage(n) in mutated) for n in lowered.feeds),
        states=tuple(named[n] for n in lowered.states),
        memory_formats=tuple(_memory_format(n) for n in lowered.states),
        copies=copy_specs,
        fetched=tuple(v.name for v in fetches),
        copied=_aliased([storage(copy_of[n]) for n in fetch_nodes], persistent),
        initialized=tuple(initialized),
        is_random=any(is_random(n) for n in ordered),
        recorded=tuple(recorded),
        trains=_trains(program, ordered),
        shared=SharedNames.of(ordered, named),
        host=HostVariables.of(lowered.graph, named, copy_specs),
        awaited=frozenset(named[p] for bucket in lowered.buckets for p in bucket),
        mutated=frozenset(named[n] for n in lowered.states if storage(n) in mutated),
        schedule=tuple(_collective(n, program) for n in ordered if is_collective(n)),
        may_fuse_updates=FuseOptimizer.name not in build.without_passes and device.type == "cpu",
    )


@dataclass(frozen=True)
class _LoweredStep:
    """A copy of recorded nodes after the passes, scheduled."""

    graph: fx.Graph
    copy_of: dict[fx.Node, fx.Node]
    """By recorded node."""
    named: dict[fx.Node, str]
    """The variables of the nodes."""
    feeds: list[fx.Node]
    states: list[fx.Node]
    copies: list[fx.Node]
    ordered: list[fx.Node]
    """The calls, as they run."""
    outputs: list[fx.Node]
    buckets: list[list[fx.Node]]
    """Parameters that are gathered together."""

    def generator(
        self, constants: dict[str, torch.Tensor], check: Callable[[fx.Node, Any], None] | None
    ) -> Callable[[Callable[[Span], None] | None], Step]:
        """Generates the code of the step; see `Compiled.generate`."""
        inputs = [*self.feeds, *self.states, *self.copies]
        return partial(generate, inputs, self.ordered, self.outputs, constants, _by_node(check, self.ordered))

    def persistent(self, created: Iterable[fx.Node]) -> set[int | None]:
        """The memory of the scope's variables, and of those that the step creates; `created`: recorded nodes."""
        nodes = [*filter(is_persistent, self.graph.nodes), *(self.copy_of[node] for node in created)]
        return {storage(node) for node in nodes}


def _lower(
    program: Program,
    recorded: list[fx.Node],
    results: Sequence[fx.Node],
    build: Build,
    device: torch.device,
    choice: DivideChoice,
    sizes: Mapping[sympy.Symbol, int],
    is_checked: bool,
) -> _LoweredStep:
    """Copy the recorded nodes, run the passes on the copy, and schedule it; `is_checked`: every node is called."""
    graph, copy_of = _copy(recorded)
    with_inductor = build.compiler == "inductor" and not is_checked
    outputs = [copy_of[n] for n in results]
    outputs = _run_passes(program, graph, outputs, build, _without(build, device, with_inductor), sizes)
    outputs = _divide(graph, outputs, choice, copy_of, sums_all=is_checked)
    _place_on(device, graph)
    named = {copy_of[node]: name for node, name in program.names_of_nodes().items() if node in copy_of}
    named |= names_of_copies(graph, named)
    feeds, states, copies, calls = _split(graph, lambda node: program.vars[named[node]].is_data)
    ordered = _defer_state_updates(calls)
    if with_inductor:
        ordered, outputs = with_regions(graph, ordered, outputs, named)
    buckets = [[copy_of[p] for p in bucket if p in copy_of] for bucket in gathered_parameters(program.graph)]
    ordered = insert_awaits(graph, ordered, outputs, buckets)
    return _LoweredStep(graph, copy_of, named, feeds, states, copies, ordered, outputs, buckets)


def _trains(program: Program, nodes: Sequence[fx.Node]) -> bool:
    """Trainers of parameter servers have no updates: they push gradients."""
    updating = ("optimize", "backward") if isinstance(program.role, TrainerRole) else ("optimize",)
    return any(node.meta["role"] in updating for node in nodes)


def _log_compiled(program: Program, fetches: Sequence[Variable], num_nodes: int, elapsed_s: float) -> None:
    names = [v.name for v in fetches] or "no fetch"
    logger.debug(
        "compiled %s version %d for %s: %d of %d nodes in %.2f s",
        *(program.name, program.version, names, num_nodes, len(program.graph.nodes), elapsed_s),
    )


def _run_passes(
    program: Program,
    graph: fx.Graph,
    outputs: list[fx.Node],
    build: Build,
    without: frozenset[str],
    sizes: Mapping[sympy.Symbol, int],
) -> list[fx.Node]:
    """Run autocast, fusions and recompute, then the default passes; returns the outputs in the new graph."""
    first = _before_default(build, without, frozenset(outputs), program.symbols.size_of(sizes))
    by_default = frozenset(FUSION_NAMES).difference(p.name for p in _checked(build.fusions))
    run_passes(graph, first, run_record(program).logged_notices, by_default)
    replacements = {node.meta.pop("replaces"): node for node in graph.nodes if "replaces" in node.meta}
    outputs = [replacements.get(node, node) for node in outputs]
    run_passes(graph, default_passes(frozenset(outputs), without, build.memory_optimize))
    return outputs


def _divisible(
    program: Program, build: Build, device: torch.device, shares_memory: bool | None
) -> DivideChoice:
    """The buckets whose updates the ranks divide, by the recorded program: the same on all ranks."""
    if DivideUpdates.name in build.without_passes or build.compiler or device.type != "cpu":
        return DivideChoice(frozenset(), "it is switched off, or impossible with this device or compiler")
    choice = divisible(program.graph)
    if choice.starts and not (_shares_memory() if shares_memory is None else shares_memory):
        return DivideChoice(frozenset(), "the ranks have no shared memory")
    return choice


def _shares_memory() -> bool:
    return world().size > 1 and world().group(GROUP).shm is not None


def _divide(
    graph: fx.Graph,
    outputs: list[fx.Node],
    choice: DivideChoice,
    copy_of: Mapping[fx.Node, fx.Node],
    sums_all: bool,
) -> list[fx.Node]:
    """Run divide_updates and sum_in_updates, if there is anything for them; returns the outputs in the new graph."""
    if not sums_all and graph.find_nodes(op="call_function", target=reduce_scatter):
        run_passes(graph, [SumInUpdates()])
    starts = frozenset(copy_of[start] for start in choice.starts if start in copy_of)
    if not graph.find_nodes(op="call_function", target=all_reduce_fused):
        return outputs
    run_passes(graph, [DivideUpdates(DivideChoice(starts, choice.reason), frozenset(outputs), sums_all)])
    replacements = {node.meta.pop("replaces"): node for node in graph.nodes if "replaces" in node.meta}
    return [replacements.get(node, node) for node in outputs]


def _before_default(
    build: Build, without: frozenset[str], live_out: frozenset[fx.Node], size_of: SizeOf
) -> list[Pass]:
    """Autocast, the fusions and recompute, which must not remove these nodes."""
    fusions = default_fusions(_checked(build.fusions), without)
    autocast, recompute = _checked((build.autocast,)), _checked((build.recompute,))
    return [p.with_live_out(live_out).with_sizes(size_of) for p in (*autocast, *fusions, *recompute)]


def _checked(passes: Sequence[BuildPass | None]) -> list[Pass]:
    given = [rewrite for rewrite in passes if rewrite is not None]
    assert all(isinstance(rewrite, Pass) for rewrite in given), f"{given!r} are not passes"
    return cast("list[Pass]", given)


def _without(build: Build, device: torch.device, with_inductor: bool) -> frozenset[str]:
    """The names of the passes that are switched off."""
    names = build.without_passes | (_NOT_WITH_INDUCTOR if with_inductor else frozenset())
    # All ranks wait until the kernels are built, because all of them must round an update alike.
    if device.type != "cpu" or not kernels.are_ready(waits=world().size > 1):
        names |= frozenset(FUSION_NAMES)
    return names


def _label(named: dict[fx.Node, str], symbols: Symbols, node: fx.Node) -> Label:
    kind = type_text(node.meta.get("val"), symbols)
    source = str(node.meta.get("source") or "")
    return Label(named.get(node, node.name), node.meta["role"], op_name(node), kind, source)


def _memory(
    program: Program,
    nodes: Sequence[fx.Node],
    outputs: Sequence[fx.Node],
    named: dict[fx.Node, str],
    label: Callable[[fx.Node], Label],
) -> MemoryProfile:
    """Classify the step's memory: parameters, other state, feeds, gradients (w@GRAD)."""
    sources = dict.fromkeys(n for node in nodes for n in (node, *node.all_input_nodes))
    parameters = {p.name for p in program.all_parameters()}
    kinds: dict[str, list[fx.Node]] = {"parameters": [], "state": [], "feeds": []}
    for node in sources:
        if node.op != "call_function":
            variable = program.vars.get(named.get(node, ""))
            is_fed = variable is not None and variable.is_data
            kinds["feeds" if is_fed else "parameters" if named.get(node) in parameters else "state"].append(
                node
            )
    gradients = [
        node
        for node in nodes
        if node.op == "call_function"
        and (is_persistent(node) or named.get(node, "").removesuffix("@GRAD") in parameters)
    ]
    persistent = {
        memory: about for what, group in kinds.items() for memory, about in memory_of(what, group).items()
    }
    return MemoryProfile(
        nodes, outputs, persistent, frozenset(memory_of("gradients", gradients)), label, program.symbols
    )


def _check_owned(graph: fx.Graph, fetches: Sequence[Variable]) -> None:
    """Reject fetches of sums that not every rank has (Reduce mode, sharding), equally on all ranks."""
    reduce_of: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        if node.target is all_reduce:
            continue  # an all-reduced norm of shards is the same on all ranks
        if node.target in (reduce, reduce_scatter):
            reduce_of[node] = node
        elif sources := [reduce_of[n] for n in node.all_input_nodes if n in reduce_of]:
            reduce_of[node] = sources[0]
    for variable in fetches:
        source = reduce_of.get(variable.node)
        if source is not None and source.target is reduce_scatter:
            raise FetchError(
                f"fetch {variable.name!r} depends on {source.args[5]!r}, of which each rank has the sum of some rows "
                "only (strategy.sharding); turn strategy.sharding off to fetch gradients"
            )
        if source is not None:
            raise FetchError(
                f"fetch {variable.name!r} depends on {source.args[3]!r}, which only rank {source.args[1]} has the sum "
                "of (ReduceStrategy.Reduce); use ReduceStrategy.AllReduce to fetch gradients"
            )


def _fetched_node(program: Program, variable: Variable, removed: set[fx.Node]) -> fx.Node:
    """The node of a fetch; of a variable of the scope whose last update is removed, the variable itself."""
    node = variable.node
    if node not in removed:
        return node
    if (placeholder := program.recorder.placeholder_of.get(variable.value)) is not None:
        return cast("fx.Node", placeholder)
    when = condition_text(conditions(program.graph)[node], program.training.periods)
    raise FetchError(
        f"fetch {variable.name!r} is computed {when}, and not in this step; fetch it in those steps only, or fetch the "
        "gradient of each step, w@GRAD"
    )


def _live_nodes(
    graph: fx.Graph, wanted: set[fx.Node], with_updates: bool, removed: set[fx.Node]
) -> list[fx.Node]:
    """The live nodes, with the wait of every started collective even if it has no users: the next step reuses its
    memory."""
    live = live_nodes(graph, wanted, with_updates, removed)
    waits = {user for node in live for user in node.users if user.target is wait}
    return live if waits <= set(live) else live_nodes(graph, wanted | waits, with_updates, removed)


def _collective(node: fx.Node, program: Program) -> str:
    """all_reduce fc_0.w_0@GRAD in dp: float32[784, 10]; must be equal on all ranks."""
    words = [str(a) for a in node.args if isinstance(a, str | int | torch.dtype)]
    kinds = [type_text(source.meta["val"], program.symbols) for source in node.all_input_nodes]
    return f"{op_name(node)} {' of '.join(words)} {', '.join(kinds)}".rstrip()


def _place_on(device: torch.device, graph: fx.Graph) -> None:
    """Set the executor's device on ops that create tensors: programs are recorded for the CPU."""
    for node in graph.nodes:
        if node.kwargs.get("device") not in (None, device):
            node.update_kwarg("device", device)
        if isinstance(node.target, BlockCall) and device != CPU:  # blocks are shared with the program
            copies = [block.copy()[0] for block in node.target.blocks]
            for block in copies:
                _place_on(device, block.graph)
            node.target = node.target.with_blocks(copies)


def _memory_format(state: fx.Node) -> torch.memory_format:
    """The memory format that a pass chose; else contiguous, as recorded, if the state has readers."""
    default = torch.contiguous_format if state.users else torch.preserve_format
    memory_format: torch.memory_format = state.meta.get("memory_format", default)
    return memory_format


def _copy_spec(copy: fx.Node, named: dict[fx.Node, str]) -> CopySpec:
    return CopySpec(named[copy.meta["copy_of"]], copy.meta["val"].dtype, _memory_format(copy))


def _aliased(memory: Sequence[int | None], persistent: set[int | None]) -> tuple[bool, ...]:
    """Which fetches alias persistent memory, or an earlier fetch."""
    return tuple(m in persistent or m in memory[:i] for i, m in enumerate(memory))


def _is_initialized(program: Program, variable: Variable) -> bool:
    """True if the program creates this variable of the scope, rather than reading or mutating an existing one."""
    return program.recorder.placeholder_of.get(variable.value) is None


def _copy(nodes: Sequence[fx.Node]) -> tuple[fx.Graph, dict[fx.Node, fx.Node]]:
    graph = fx.Graph()
    copy_of: dict[fx.Node, fx.Node] = {}
    for node in nodes:
        copy_of[node] = graph.node_copy(node, lambda n: copy_of[n])
    return graph, copy_of


def _split(
    graph: fx.Graph, is_fed: Callable[[fx.Node], bool]
) -> tuple[list[fx.Node], list[fx.Node], list[fx.Node], list[fx.Node]]:
    """The feeds, the variables of the scope, their 16-bit copies, and the calls."""
    copies = [n for n in graph.nodes if "copy_of" in n.meta]
    inputs = [n for n in graph.nodes if n.op == "placeholder" and n not in copies]
    feeds = [n for n in inputs if is_fed(n)]
    states = [n for n in inputs if not is_fed(n)]
    return feeds, states, copies, [n for n in graph.nodes if n.op != "placeholder"]


def _defer_state_updates(nodes: Sequence[fx.Node]) -> list[fx.Node]:
    """Move forward's updates of the scope (statistics) after all nodes that may still fail.

    An update stays before the first node that touches the memory it mutates, or mutates what it reads.
    """
    inputs = {source for node in nodes for source in node.all_input_nodes}
    states = {storage(n) for n in inputs if n.op == "placeholder"}
    deferred: list[fx.Node] = []
    written: set[int | None] = set()
    read: set[int | None] = set()
    ordered: list[fx.Node] = []
    for node in nodes:
        touched, mutated = (
            {storage(n) for n in used} for used in (node.all_input_nodes, mutated_inputs(node))
        )
        if touched & written or mutated & read:
            ordered += deferred
            deferred, written, read = [], set(), set()
        if mutated and mutated <= states and node.meta["role"] == "forward" and not node.users:
            deferred.append(node)
            written |= mutated
            read |= touched
        else:
            ordered.append(node)
    first_update = next((i for i, n in enumerate(ordered) if n.meta["role"] == "optimize"), len(ordered))
    after = set(ordered[first_update:])  # a layer that was built after `minimize` has its statistics there
    late = [node for node in deferred if after.intersection(node.all_input_nodes)]
    early = [node for node in deferred if node not in late]
    return [*ordered[:first_update], *early, *ordered[first_update:], *late]


def _by_node(
    check: Callable[[fx.Node, Any], None] | None, nodes: Sequence[fx.Node]
) -> Callable[[int, Any], None] | None:
    return None if check is None else lambda i, value: check(nodes[i], value)


def feed_of(program: Program, name: str, is_mutated: bool = False) -> Feed:
    """The type of the program's feed of this name."""
    variable = program.vars[name]
    sizes = tuple(s if isinstance(s, int) else s.node._expr for s in variable.value.shape)
    return Feed(name, variable.dtype, sizes, is_mutated)


def _missing_state(name: str) -> str:
    tables = trainer.current().plan.tables if trainer.is_connected() else ()
    if name in [table.name for table in tables]:
        return (
            f"{name!r} is a table on the servers, and this program looks it up in the scope; clone the program after "
            "minimize, or take DistributedInfer(program).get_dist_infer_program()"
        )
    return (
        f"variable {name!r} has no value in the scope; run the startup program first: "
        "exe.run(static.default_startup_program())"
    )


def read_state(
    scope: Scope,
    name: str,
    memory_format: torch.memory_format = torch.preserve_format,
    is_private: bool = False,
) -> torch.Tensor:
    """The value of a variable in this memory format; with `is_private`, in memory that no other rank shares.

    Raises ScopeError if it has no value.
    """
    value = scope.find(name)
    if value is None:
        raise ScopeError(_missing_state(name))
    if is_private and scope.is_shared(name):
        value = value.clone()
        scope.put(name, value, is_owned=True)
    if not has_format(value, memory_format):
        value = value.contiguous(memory_format=memory_format)
        if not scope.is_shared(name):
            scope.put(name, value, is_owned=True)
    return value


def has_format(value: torch.Tensor, memory_format: torch.memory_format) -> bool:
    """True if the value is in this memory format; every value is in torch.preserve_format."""
    return memory_format is torch.preserve_format or value.is_contiguous(memory_format=memory_format)
