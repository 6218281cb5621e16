"""Compile a step with torch's Inductor: each region of nodes becomes one node, which calls the compiled function.

    v9 = mm(v1, v2)                         a = [v1, v2, v5]; del v1, v2
    v10 = relu(v9)                ──▶       v14 = region_1(a)
    v11 = add(v10, v5)                      v11 = v14[0]

passes/outline.py chooses the regions. A region is compiled when it first runs, for the actual sizes of its inputs;
Inductor's cache on disk makes that fast when a script is started again. A region that cannot be compiled runs node by
node, with a warning.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import functools
import operator
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from argosy.engine import env, process_effects
from argosy.engine.ir.effects import storages
from argosy.engine.log import NOTICE, logger
from argosy.engine.passes.outline import RegionNodes, outline
from argosy.engine.runtime.codegen import generate

_MAX_SIZES = 4
"""A region is compiled for at most this many sizes of its inputs; other sizes run node by node."""

RegionFunction = Callable[[list[Any]], Sequence[Any]]
"""Takes a list of values, which it empties, so that they are freed as soon as they are used."""


class Region:
    """Several nodes as one function; compiled for each new set of input sizes."""

    takes_list = True

    def __init__(self, nodes: RegionNodes, inputs: Sequence[fx.Node], results: Sequence[fx.Node]) -> None:
        self.nodes, self.inputs, self.results = nodes, tuple(inputs), tuple(results)
        self.__name__ = "region"
        self.place = "1 of 1"
        """Its number of how many, for messages."""
        self._dynamic = [i for i, node in enumerate(inputs) if _is_dynamic(node.meta.get("val"))]
        self._functions: dict[tuple[Any, ...], RegionFunction] = {}

    def __call__(self, values: list[Any]) -> Sequence[Any]:
        sizes = tuple(_size(values[i]) for i in self._dynamic)
        function = self._functions.get(sizes)
        if function is None:
            function = self._functions[sizes] = self._build(values)
        return function(values)

    def _build(self, values: list[Any]) -> RegionFunction:
        if len(self._functions) >= _MAX_SIZES:
            _warn_once(
                f"inductor: a region was compiled for {_MAX_SIZES} sizes of its inputs; other sizes run node by node: "
                "feed batches of few sizes (drop_last=True), or switch the compiler off"
            )
            return self._uncompiled()
        began = time.perf_counter()
        logger.log(NOTICE, "inductor: compiling region %s (%d nodes) …", self.place, len(self.nodes))
        try:
            function = _compile(self, values)
        except Exception as e:
            reason = f"{type(e).__name__}: {e}".strip().splitlines()[0]
            _warn_once(f"inductor: a region cannot be compiled and runs node by node: {reason}")
            logger.info("inductor: region %s runs node by node: %s", self.place, e)
            return self._uncompiled()
        logger.info("inductor: region %s compiled in %.1f s", self.place, time.perf_counter() - began)
        return function

    def _uncompiled(self) -> RegionFunction:
        function = generate(self.inputs, self.nodes, self.results, {}).function

        def run(values: list[Any]) -> Sequence[Any]:
            results = function(*values)
            values.clear()
            return results

        return run


def with_regions(
    graph: fx.Graph, nodes: Sequence[fx.Node], outputs: Sequence[fx.Node], named: dict[fx.Node, str]
) -> tuple[list[fx.Node], list[fx.Node]]:
    """Nodes and outputs of the step, with each region replaced by a new node, which is added to `named`."""
    ordered: list[fx.Node] = []
    regions: list[Region] = []
    new_of: dict[fx.Node, fx.Node] = {}
    for item in outline(nodes):
        if isinstance(item, fx.Node):
            ordered.append(item)
            continue
        region = _region(item, set(outputs))
        regions.append(region)
        ordered += _call(graph, region, len(regions), named, new_of)
    for number, region in enumerate(regions, 1):
        region.place = f"{number} of {len(regions)}"
    inside = sum(len(region.nodes) for region in regions)
    logger.info("inductor: %d regions with %d of %d nodes", len(regions), inside, len(nodes))
    return ordered, [new_of.get(node, node) for node in outputs]


def _region(nodes: RegionNodes, outputs: set[fx.Node]) -> Region:
    inside = set(nodes)
    inputs = dict.fromkeys(n for node in nodes for n in node.all_input_nodes if n not in inside)
    results = [n for n in nodes if n in outputs or any(user not in inside for user in n.users)]
    return Region(nodes, list(inputs), results)


def _call(
    graph: fx.Graph, region: Region, number: int, named: dict[fx.Node, str], new_of: dict[fx.Node, fx.Node]
) -> list[fx.Node]:
    """The node that calls the region, and a getitem for each of its results, which replaces the old node."""
    first, last = region.nodes[0], region.nodes[-1]
    call = graph.create_node("call_function", region, region.inputs, name=f"region_{number}")
    call.meta = {
        "role": last.meta["role"],
        "source": " … ".join(str(n.meta["source"]) for n in (first, last) if n.meta.get("source")),
    }
    named[call] = f"region ({named.get(first, first.name)} … {named.get(last, last.name)})"
    created = [call]
    inside = set(region.nodes)

    def is_outside(user: fx.Node) -> bool:
        return user not in inside

    for place, old in enumerate(region.results):
        new = graph.call_function(operator.getitem, (call, place))
        new.meta = dict(old.meta)
        named[new] = named.get(old, old.name)
        old.replace_all_uses_with(new, delete_user_cb=is_outside)
        new_of[old] = new
        created.append(new)
    return created


# --- compiling ----------------------------------------------------------------------------------------


def _compile(region: Region, values: list[Any]) -> RegionFunction:
    """Compile the region for these values; raises torch's or the compiler's error if that fails."""
    places = [i for i, value in enumerate(values) if isinstance(value, torch.Tensor)]
    with _settings():
        from torch._inductor.compile_fx import compile_fx_inner

        mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
        graph, fakes = _traced(region, values, places, mode)
        with tracing(TracingContext(mode)):  # required for Inductor's cache
            function = compile_fx_inner(graph, fakes, layout_opt=False)
        copied = _unexpected_aliases(region, values, function([values[i] for i in places]))
    has_sizes = len(places) < len(values)

    def run(values: list[Any]) -> Sequence[Any]:
        if has_sizes:
            values[:] = [values[i] for i in places]
        results: Sequence[Any] = function(values)
        if copied:
            results = [value.clone() if i in copied else value for i, value in enumerate(results)]
        return results

    return run


def _unexpected_aliases(region: Region, values: list[Any], results: Sequence[Any]) -> set[int]:
    """Indices of results that alias an input or another result, but would not if the nodes ran one by one.

    Such a result is copied, because a later node may mutate it. The first run finds them: they are the same in every
    run.
    """
    expected: dict[int, set[int]] = {}
    for node, value in zip(region.inputs, values, strict=True):
        if isinstance(value, torch.Tensor):
            expected.setdefault(value.untyped_storage()._cdata, set()).update(storages(node))
    copied = set()
    for place, (node, value) in enumerate(zip(region.results, results, strict=True)):
        if isinstance(value, torch.Tensor):
            others = expected.setdefault(value.untyped_storage()._cdata, storages(node))
            if not others & storages(node):
                copied.add(place)
    return copied


def _traced(
    region: Region, values: list[Any], places: list[int], mode: FakeTensorMode
) -> tuple[fx.GraphModule, list[Any]]:
    """The region traced for these sizes, with Inductor's decompositions."""
    from torch._inductor.decomposition import select_decomp_table

    fakes = [mode.from_tensor(values[i], static_shapes=True) for i in places]

    def run(*tensors: torch.Tensor) -> list[Any]:
        known = dict(zip(region.inputs, values, strict=True))
        known |= {region.inputs[i]: tensor for i, tensor in zip(places, tensors, strict=True)}
        for node in region.nodes:
            args, kwargs = fx.map_arg((node.args, node.kwargs), known.__getitem__)
            known[node] = node.target(*args, **kwargs)  # type: ignore[operator]  # an op, or operator.getitem
        return [known[node] for node in region.results]

    with enable_python_dispatcher(), torch.no_grad():
        graph = make_fx(run, select_decomp_table(), "real")(*fakes)
    output = next(iter(graph.graph.find_nodes(op="output")))
    output.meta["user_visible_output_idxs"] = list(range(len(region.results)))  # they keep their strides
    return graph, fakes


@contextmanager
def _settings() -> Iterator[None]:
    """Configure Inductor for this rank's number of threads and Argosy's cache, without other side effects."""
    state = torch.get_rng_state()  # compiling must not change the random numbers of a step
    with process_effects.during("torch-config"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they concern torch's own code
        # Imported here: it takes seconds, and most programs do not use it.
        from torch._inductor import config
        from torch._inductor.runtime.cache_dir_utils import default_cache_dir

        process_effects.install("inductor-cache", lambda: env.set_inductor_cache(default_cache_dir()))
        # The number of threads is compiled into the kernels, so it must be part of the cache key.
        threads = torch.get_num_threads()
        try:
            with config.patch({"cpp.threads": threads, "compile_threads": threads}):
                yield
        finally:
            torch.set_rng_state(state)


def _is_dynamic(value: Any) -> bool:
    """True if a size depends on the feeds."""
    sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
    return not all(isinstance(size, int) for size in sizes)


def _size(value: Any) -> Any:
    return value.shape if isinstance(value, torch.Tensor) else value


@functools.cache
def _warn_once(text: str) -> None:
    logger.warning("%s", text)
