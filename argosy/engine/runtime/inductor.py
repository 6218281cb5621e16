"""Let torch's Inductor compile a step: each group of nodes becomes one node, which calls what Inductor made of it.

    v9 = mm(v1, v2)                         a = [v1, v2, v5]; del v1, v2
    v10 = relu(v9)                ──▶       v14 = region_1(a)
    v11 = add(v10, v5)                      v11 = v14[0]

Which nodes form a group is told by passes/outline.py. A region is compiled when it first runs, for the very sizes
that come in; Inductor's cache on disk makes that short when a script is started again. What cannot be compiled runs
node by node, with a warning.
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

from argosy.engine import env
from argosy.engine.ir.effects import storages
from argosy.engine.log import NOTICE, logger
from argosy.engine.passes.outline import Group, outline
from argosy.engine.runtime.codegen import generate

_MOST_SIZES = 4
"""For more sizes than these a region is not compiled: compiling would never end."""

Compiled = Callable[[list[Any]], Sequence[Any]]
"""Takes a list of values, which it empties, so that they are freed as soon as they are used."""


class Region:
    """A group of nodes as one function; compiled for each sizes of its inputs when they first come."""

    takes_list = True

    def __init__(self, nodes: Group, inputs: Sequence[fx.Node], results: Sequence[fx.Node]) -> None:
        self.nodes, self.inputs, self.results = nodes, tuple(inputs), tuple(results)
        self.__name__ = "region"
        self.place = "1 of 1"
        """Which one of how many, for messages."""
        self._varying = [i for i, node in enumerate(inputs) if _varies(node.meta.get("val"))]
        self._made: dict[tuple[Any, ...], Compiled] = {}

    def __call__(self, values: list[Any]) -> Sequence[Any]:
        sizes = tuple(_size(values[i]) for i in self._varying)
        made = self._made.get(sizes)
        if made is None:
            made = self._made[sizes] = self._make(values)
        return made(values)

    def _make(self, values: list[Any]) -> Compiled:
        if len(self._made) >= _MOST_SIZES:
            _warn_once(
                f"inductor: a region was compiled for {_MOST_SIZES} sizes of its inputs, and others came; those run "
                "node by node: feed batches of few sizes (drop_last=True), or switch the compiler off"
            )
            return self._plain()
        began = time.perf_counter()
        logger.log(NOTICE, "inductor: compiling region %s (%d nodes) …", self.place, len(self.nodes))
        try:
            made = _compile(self, values)
        except Exception as e:
            reason = f"{type(e).__name__}: {e}".strip().splitlines()[0]
            _warn_once(f"inductor: a region cannot be compiled and runs node by node: {reason}")
            logger.info("inductor: region %s runs node by node: %s", self.place, e)
            return self._plain()
        logger.info("inductor: region %s compiled in %.1f s", self.place, time.perf_counter() - began)
        return made

    def _plain(self) -> Compiled:
        function = generate(self.inputs, self.nodes, self.results, {}).function

        def run(values: list[Any]) -> Sequence[Any]:
            found = function(*values)
            values.clear()
            return found

        return run


def with_regions(
    graph: fx.Graph, nodes: Sequence[fx.Node], outputs: Sequence[fx.Node], named: dict[fx.Node, str]
) -> tuple[list[fx.Node], list[fx.Node]]:
    """Nodes and outputs of the step, with a new node of the graph, named in `named`, in the place of each group."""
    ordered: list[fx.Node] = []
    regions: list[Region] = []
    new_of: dict[fx.Node, fx.Node] = {}
    for one in outline(nodes):
        if isinstance(one, fx.Node):
            ordered.append(one)
            continue
        region = _region(one, set(outputs))
        regions.append(region)
        ordered += _call(graph, region, len(regions), named, new_of)
    for number, region in enumerate(regions, 1):
        region.place = f"{number} of {len(regions)}"
    inside = sum(len(region.nodes) for region in regions)
    logger.info("inductor: %d regions with %d of %d nodes", len(regions), inside, len(nodes))
    return ordered, [new_of.get(node, node) for node in outputs]


def _region(nodes: Group, outputs: set[fx.Node]) -> Region:
    inside = set(nodes)
    inputs = dict.fromkeys(n for node in nodes for n in node.all_input_nodes if n not in inside)
    results = [n for n in nodes if n in outputs or any(user not in inside for user in n.users)]
    return Region(nodes, list(inputs), results)


def _call(
    graph: fx.Graph, region: Region, number: int, named: dict[fx.Node, str], new_of: dict[fx.Node, fx.Node]
) -> list[fx.Node]:
    """The node that calls the region, and one for each of its results, which whoever read the old node now reads."""
    first, last = region.nodes[0], region.nodes[-1]
    call = graph.create_node("call_function", region, region.inputs, name=f"region_{number}")
    call.meta = {
        "role": last.meta["role"],
        "source": " … ".join(str(n.meta["source"]) for n in (first, last) if n.meta.get("source")),
    }
    named[call] = f"region ({named.get(first, first.name)} … {named.get(last, last.name)})"
    made = [call]
    inside = set(region.nodes)

    def is_outside(user: fx.Node) -> bool:
        return user not in inside

    for place, old in enumerate(region.results):
        new = graph.call_function(operator.getitem, (call, place))
        new.meta = dict(old.meta)
        named[new] = named.get(old, old.name)
        old.replace_all_uses_with(new, delete_user_cb=is_outside)
        new_of[old] = new
        made.append(new)
    return made


# --- compiling ----------------------------------------------------------------------------------------


def _compile(region: Region, values: list[Any]) -> Compiled:
    """What Inductor makes of the region for these values; torch's or the compiler's error if it cannot."""
    places = [i for i, value in enumerate(values) if isinstance(value, torch.Tensor)]
    with _settings():
        from torch._inductor.compile_fx import compile_fx_inner

        mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
        graph, fakes = _traced(region, values, places, mode)
        with tracing(TracingContext(mode)):  # without it nothing is cached
            function = compile_fx_inner(graph, fakes, layout_opt=False)
        copied = _unexpectedly_shared(region, values, function([values[i] for i in places]))
    has_sizes = len(places) < len(values)

    def run(values: list[Any]) -> Sequence[Any]:
        if has_sizes:
            values[:] = [values[i] for i in places]
        found: Sequence[Any] = function(values)
        if copied:
            found = [value.clone() if i in copied else value for i, value in enumerate(found)]
        return found

    return run


def _unexpectedly_shared(region: Region, values: list[Any], found: Sequence[Any]) -> set[int]:
    """Results that lie in the memory of an input or another result, and would not if the nodes ran one by one.

    Such a result is copied, since a later node may write into it. The first run tells: it is always the same ones.
    """
    expected: dict[int, set[int]] = {}
    for node, value in zip(region.inputs, values, strict=True):
        if isinstance(value, torch.Tensor):
            expected.setdefault(value.untyped_storage()._cdata, set()).update(storages(node))
    copied = set()
    for place, (node, value) in enumerate(zip(region.results, found, strict=True)):
        if isinstance(value, torch.Tensor):
            others = expected.setdefault(value.untyped_storage()._cdata, storages(node))
            if not others & storages(node):
                copied.add(place)
    return copied


def _traced(
    region: Region, values: list[Any], places: list[int], mode: FakeTensorMode
) -> tuple[fx.GraphModule, list[Any]]:
    """The region for these sizes, in the ops that Inductor knows best."""
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
    """Inductor is loaded, compiles for this rank's threads and into our cache, and changes nothing else."""
    state = torch.get_rng_state()  # a step draws the same numbers whether something was compiled or not
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are about torch's own code
        # Loaded here: it takes seconds, and most programs do without.
        from torch._inductor import config
        from torch._inductor.runtime.cache_dir_utils import default_cache_dir

        env.set_inductor_cache(default_cache_dir())
        # The number of threads is written into the kernels, and so it must be a part of the cache's key.
        threads = torch.get_num_threads()
        try:
            with config.patch({"cpp.threads": threads, "compile_threads": threads}):
                yield
        finally:
            torch.set_rng_state(state)


def _varies(value: Any) -> bool:
    """True if another feed may give another size."""
    sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
    return not all(isinstance(size, int) for size in sizes)


def _size(value: Any) -> Any:
    return value.shape if isinstance(value, torch.Tensor) else value


@functools.cache
def _warn_once(text: str) -> None:
    logger.warning("%s", text)
