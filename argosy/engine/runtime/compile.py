"""From a program and what is asked of it to a function: prune, rewrite, order, write code."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import sympy
import torch
from torch import fx

from argosy.engine.errors import FetchError, ScopeError
from argosy.engine.ir.effects import changed_inputs, communicates, is_lasting, is_random, needed, storage
from argosy.engine.ir.layout import is_stale, propagate
from argosy.engine.ir.program import Build, Program
from argosy.engine.ir.show import op_name, type_text
from argosy.engine.ir.symbols import Symbols
from argosy.engine.ir.variable import Variable
from argosy.engine.log import logger
from argosy.engine.ops.all_reduce import wait
from argosy.engine.ops.reduce import reduce
from argosy.engine.passes import default_passes
from argosy.engine.passes.base import run_passes
from argosy.engine.ps.trainer import trainer
from argosy.engine.runtime.codegen import Span, Step, generate
from argosy.engine.runtime.inductor import with_regions
from argosy.engine.runtime.peak import Memory, memory_of
from argosy.engine.runtime.scope import Scope

CPU = torch.device("cpu")
_NOT_WITH_INDUCTOR = frozenset({"in_place", "rebuild_activations", "choose_kernels"})
"""Inductor reuses memory itself, merges what is computed twice, and knows ATen's convolutions."""


@dataclass(frozen=True)
class Feed:
    """A feed as the step wants it."""

    name: str
    dtype: torch.dtype
    sizes: tuple[int | sympy.Symbol, ...]
    """A symbol stands for a size that may be anything."""
    is_changed: bool = False
    """True: the step writes into it, so it gets a copy of what was fed."""


@dataclass(frozen=True)
class Label:
    """What a node is called in the printed program."""

    name: str
    role: str
    op: str
    kind: str
    """float32[N, 10]"""
    source: str


@dataclass(frozen=True)
class Timed:
    """A step that notes when each of its nodes ran."""

    step: Step
    spans: list[Span]
    """Grows with every run."""
    labels: tuple[Label, ...]
    """Of the nodes, in the order of the lines."""


@dataclass
class Compiled:
    """A step that can be called: what goes in, what comes out."""

    step: Step
    write: Callable[[Callable[[Span], None] | None], Step]
    """Writes the step, with a clock around every node if there is somebody to be told."""
    label: Callable[[fx.Node], Label]
    memory: Memory
    feeds: tuple[Feed, ...]
    states: tuple[str, ...]
    memory_formats: tuple[torch.memory_format, ...]
    fetched: tuple[str, ...]
    copied: tuple[bool, ...]
    """Which fetches lie in memory of the scope and must be copied before the next run changes them."""
    made: tuple[str, ...]
    """Variables of the scope that the step creates: the initialisers of a startup program."""
    draws: bool
    """True: the step draws random numbers."""
    recorded: tuple[fx.Node, ...] = ()
    """The nodes that it was compiled from, as they were recorded."""
    trains: bool = False
    """True: the step has updates of an optimizer."""
    schedule: tuple[str, ...] = ()
    """The collectives that the step starts, in order, in words."""
    runs: int = 0
    """How often it has run to the end."""
    sizes: dict[sympy.Symbol, int] = field(default_factory=dict)
    """What was fed for symbols in the last run."""
    checked_sizes: set[tuple[int, ...]] = field(default_factory=set)
    _bound: tuple[Scope, int, list[torch.Tensor]] | None = None

    def state_values(self, scope: Scope) -> list[torch.Tensor]:
        """The scope's tensors in the order of the step's arguments, in the memory format that it wants."""
        if self._bound is None or self._bound[0] is not scope or self._bound[1] != scope.version:
            found = [_state(scope, n, f) for n, f in zip(self.states, self.memory_formats, strict=True)]
            self._bound = (scope, scope.version, found)
        return self._bound[2]

    @cached_property
    def timed(self) -> Timed:
        """The same step for a timeline, written when it is first asked for."""
        spans: list[Span] = []
        step = self.write(spans.append)
        return Timed(step, spans, tuple(self.label(node) for node in step.nodes))


def compile_program(
    program: Program,
    fetches: Sequence[Variable],
    check: Callable[[fx.Node, Any], None] | None = None,
    device: torch.device = CPU,
    with_updates: bool = True,
    build: Build | None = None,
) -> Compiled:
    """Compile for these fetches, as `build` says, or else the program's own.

    `check(node, value)` is called after every node, if given.
    """
    began = time.perf_counter()
    fetch_nodes = [v.node for v in fetches]
    _check_owned(program.graph, fetches)
    made = {name: v.node for name, v in program.persistables().items() if _is_made(program, v)}
    kept = _needed(program.graph, {*fetch_nodes, *made.values()}, with_updates)
    graph, copy_of = _copy(kept)
    outputs = [copy_of[n] for n in (*fetch_nodes, *made.values())]
    build = program.build if build is None else build
    with_inductor = build.compiler == "inductor" and check is None  # a check looks at every node
    without = build.without_passes | (_NOT_WITH_INDUCTOR if with_inductor else frozenset())
    fusions = [fusion.keeping(frozenset(outputs)) for fusion in build.fusions]
    run_passes(graph, fusions, program.told)
    if fusions and is_stale(graph):
        propagate(graph)
    run_passes(graph, default_passes(frozenset(outputs), without, build.memory_optimize))
    _place_on(device, graph)
    constants = {name: value.to(device) for name, value in program.recorder.constants.items()}
    named = {copy_of[node]: name for node, name in program.names_of_nodes().items() if node in copy_of}
    inputs, calls = _split(graph)
    ordered = _changes_last(calls)
    if with_inductor:
        ordered, outputs = with_regions(graph, ordered, outputs, named)
    feeds = [n for n in inputs if program.vars[named[n]].is_data]
    states = [n for n in inputs if not program.vars[named[n]].is_data]
    write = partial(generate, [*feeds, *states], ordered, outputs, constants, _by_node(check, ordered))
    step = write()
    changed = {storage(source) for node in ordered for source in changed_inputs(node)}
    kept_nodes = [n for n in graph.nodes if is_lasting(n)]
    lasting = {storage(n) for n in (*kept_nodes, *(copy_of[n] for n in made.values()))}
    logger.debug(
        "compiled %s version %d for %s: %d of %d nodes in %.2f s",
        program.name,
        program.version,
        [v.name for v in fetches] or "no fetch",
        len(ordered),
        len(program.graph.nodes),
        time.perf_counter() - began,
    )
    label = partial(_label, named, program.symbols)  # not the program itself: the executor's cache is weak
    return Compiled(
        step=step,
        write=write,
        label=label,
        memory=_memory(program, ordered, outputs, named, label),
        feeds=tuple(feed_of(program, named[n], storage(n) in changed) for n in feeds),
        states=tuple(named[n] for n in states),
        memory_formats=tuple(_wanted_format(n) for n in states),
        fetched=tuple(v.name for v in fetches),
        copied=_shared([storage(copy_of[n]) for n in fetch_nodes], lasting),
        made=tuple(made),
        draws=any(is_random(n) for n in ordered),
        recorded=tuple(kept),
        trains=any(n.meta["role"] == "optimize" for n in ordered),
        schedule=tuple(_collective(n, program) for n in ordered if communicates(n)),
    )


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
) -> Memory:
    """What each memory is for: states are parameters or not, feeds are fed, w@GRAD is a gradient."""
    sources = dict.fromkeys(one for node in nodes for one in (node, *node.all_input_nodes))
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
        and (is_lasting(node) or named.get(node, "").removesuffix("@GRAD") in parameters)
    ]
    lasting = {
        memory: about for what, found in kinds.items() for memory, about in memory_of(what, found).items()
    }
    return Memory(
        nodes, outputs, lasting, frozenset(memory_of("gradients", gradients)), label, program.symbols
    )


def _check_owned(graph: fx.Graph, fetches: Sequence[Variable]) -> None:
    """In Reduce mode a gradient's sum is on its owner alone: refuse what depends on it, on all ranks alike."""
    reached: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        if node.target is reduce:
            reached[node] = node
        elif found := [reached[n] for n in node.all_input_nodes if n in reached]:
            reached[node] = found[0]
    for variable in fetches:
        if (source := reached.get(variable.node)) is not None:
            raise FetchError(
                f"fetch {variable.name!r} depends on {source.args[3]!r}, which only rank {source.args[1]} has the sum "
                "of (ReduceStrategy.Reduce); use ReduceStrategy.AllReduce to look at gradients"
            )


def _needed(graph: fx.Graph, wanted: set[fx.Node], with_updates: bool) -> list[fx.Node]:
    """What must run. An exchange that is begun is waited for even if nobody wants it: the next step uses its memory."""
    kept = needed(graph, wanted, with_updates)
    waits = {user for node in kept for user in node.users if user.target is wait}
    return kept if waits <= set(kept) else needed(graph, wanted | waits, with_updates)


def _collective(node: fx.Node, program: Program) -> str:
    """all_reduce fc_0.w_0@GRAD in dp: float32[784, 10] — what the other ranks must do too."""
    words = [str(a) for a in node.args if isinstance(a, str | int | torch.dtype)]
    kinds = [type_text(source.meta["val"], program.symbols) for source in node.all_input_nodes]
    return f"{op_name(node)} {' of '.join(words)} {', '.join(kinds)}".rstrip()


def _place_on(device: torch.device, graph: fx.Graph) -> None:
    """Programs are built for the CPU; what makes tensors makes them on the executor's device."""
    for node in graph.nodes:
        if node.kwargs.get("device") not in (None, device):
            node.update_kwarg("device", device)


def _wanted_format(state: fx.Node) -> torch.memory_format:
    """channels_last if a pass said so; contiguous, as it was recorded, if anything reads it."""
    default = torch.contiguous_format if state.users else torch.preserve_format
    wanted: torch.memory_format = state.meta.get("memory_format", default)
    return wanted


def _shared(memory: Sequence[int | None], lasting: set[int | None]) -> tuple[bool, ...]:
    """Which fetches lie in memory that lasts, or that an earlier fetch lies in."""
    return tuple(m in lasting or m in memory[:i] for i, m in enumerate(memory))


def _is_made(program: Program, variable: Variable) -> bool:
    """True if the program makes this variable of the scope rather than reading or changing one that is there."""
    return program.recorder.placeholder_of.get(variable.value) is None


def _copy(nodes: Sequence[fx.Node]) -> tuple[fx.Graph, dict[fx.Node, fx.Node]]:
    graph = fx.Graph()
    copy_of: dict[fx.Node, fx.Node] = {}
    for node in nodes:
        copy_of[node] = graph.node_copy(node, lambda n: copy_of[n])
    return graph, copy_of


def _split(graph: fx.Graph) -> tuple[list[fx.Node], list[fx.Node]]:
    inputs = [n for n in graph.nodes if n.op == "placeholder"]
    return inputs, [n for n in graph.nodes if n.op != "placeholder"]


def _changes_last(nodes: Sequence[fx.Node]) -> list[fx.Node]:
    """Move what forward changes in the scope (statistics) behind everything that may still fail.

    A change stays before the first node that touches the changed memory, or changes what the change reads.
    """
    inputs = {source for node in nodes for source in node.all_input_nodes}
    states = {storage(n) for n in inputs if n.op == "placeholder"}
    held: dict[fx.Node, set[int | None]] = {}
    ordered: list[fx.Node] = []
    for node in nodes:
        changed = {storage(n) for n in changed_inputs(node)}
        if any(_touched(node) & written or changed & _touched(other) for other, written in held.items()):
            ordered += held
            held = {}
        if changed and changed <= states and node.meta["role"] == "forward" and not node.users:
            held[node] = changed
        else:
            ordered.append(node)
    first_update = next((i for i, n in enumerate(ordered) if n.meta["role"] == "optimize"), len(ordered))
    behind = set(ordered[first_update:])  # a layer that was built after `minimize` has its statistics there
    late = [node for node in held if behind.intersection(node.all_input_nodes)]
    early = [node for node in held if node not in late]
    return [*ordered[:first_update], *early, *ordered[first_update:], *late]


def _touched(node: fx.Node) -> set[int | None]:
    """The memory that a node reads or changes."""
    return {storage(n) for n in node.all_input_nodes}


def _by_node(
    check: Callable[[fx.Node, Any], None] | None, nodes: Sequence[fx.Node]
) -> Callable[[int, Any], None] | None:
    return None if check is None else lambda i, value: check(nodes[i], value)


def feed_of(program: Program, name: str, is_changed: bool = False) -> Feed:
    """What the program wants to be fed under this name."""
    variable = program.vars[name]
    sizes = tuple(s if isinstance(s, int) else s.node._expr for s in variable.value.shape)
    return Feed(name, variable.dtype, sizes, is_changed)


def _why_absent(name: str) -> str:
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


def _state(scope: Scope, name: str, memory_format: torch.memory_format) -> torch.Tensor:
    value = scope.values_of().get(name)
    if value is None:
        raise ScopeError(_why_absent(name))
    if memory_format is not torch.preserve_format and not value.is_contiguous(memory_format=memory_format):
        value = value.contiguous(memory_format=memory_format)
        scope.put(name, value)
    return value
