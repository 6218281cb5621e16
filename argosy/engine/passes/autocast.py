"""Run products in 16 bits: automatic mixed precision.

    before    y = convolution(x, w)                        float32
              z = relu(y)                                  float32
              p = _log_softmax(z)                          float32
    after     x16, w16 = _to_copy(x, bfloat16), _to_copy(w, bfloat16)
              y = convolution(x16, w16)                    bfloat16    white: its inputs are cast
              z = relu(y)                                  bfloat16    gray: follows its inputs
              p = _log_softmax(_to_copy(z, float32))       float32     black: gets the precision that was recorded

`amp_lists` has the lists. Each value is cast once. Backward nodes are rewritten by the same rules. Updates widen 16-bit
gradients themselves; collectives get float32 gradients, unless `cast_all_reduce` has made them 16-bit. Parameters stay
float32: they are the master weights. At the end `narrow_copies` replaces casts of weights. Runs first, on the copy of
the program that is compiled, so that fusions see 16-bit ops. Changes numerics.
"""

# SPDX-License-Identifier: Apache-2.0
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self

import torch
from torch import fx
from torch._ops import OpOverload

from argosy.engine.ir.blocks import BlockCall
from argosy.engine.ir.dtypes import dtype_name
from argosy.engine.ir.effects import mutated_inputs, storage
from argosy.engine.ir.infer import infer
from argosy.engine.ops.gradient_buckets import copy_into_bucket, mm_into_bucket
from argosy.engine.ops.updates import UPDATES
from argosy.engine.passes.amp_lists import AmpLists
from argosy.engine.passes.base import Pass, Report
from argosy.engine.passes.narrow_copies import keep_copies

aten = torch.ops.aten

_MIXED = {
    "native_batch_norm": ("input",),
    "native_batch_norm_backward": ("grad_out", "input"),
    "native_layer_norm": ("input",),
    "native_layer_norm_backward": ("grad_out", "input"),
    "native_group_norm": ("input",),
    "native_group_norm_backward": ("grad_out", "input"),
}
"""Op -> its 16-bit arguments; it takes float32 weights and statistics beside them."""
_VIEWS = frozenset({
    aten.t.default, aten.permute.default, aten.transpose.int, aten.view.default, aten.expand.default,
    aten.unsqueeze.default, aten.squeeze.dim, aten.squeeze.dims,
})  # fmt: skip
"""Ops whose result in another dtype is the same view of the cast input."""
_CONVERTING = frozenset({aten._to_copy.default, copy_into_bucket})
"""Ops that take a float of any dtype and convert it."""
_STATISTICS = frozenset({"logsumexp", "save_mean", "save_invstd", "running_mean", "running_var"})
"""Arguments that are float32 whatever the precision of the op."""


@dataclass(frozen=True)
class Autocast(Pass):
    """See the module's picture."""

    name: ClassVar[str] = "autocast"

    dtype: torch.dtype = torch.bfloat16
    lists: AmpLists = field(default_factory=AmpLists)
    is_pure: bool = False
    """True: gray ops run in 16 bits, too."""
    guarded_only: bool = False
    """True: only ops with the tag "fp16_guard" run in 16 bits."""
    keeps_copies: bool = True
    """True: updates write 16-bit copies of the weights; False: every step casts them."""
    live_out: frozenset[fx.Node] = frozenset()

    def with_live_out(self, live_out: frozenset[fx.Node]) -> Self:
        return replace(self, live_out=live_out)

    def run(self, graph: fx.Graph) -> Report:
        rewriter = _Rewriter(graph, self)
        for node in list(graph.nodes):
            if node.op == "call_function":
                rewriter.visit(node)
        rewriter.restore(self.live_out)
        ops = ", ".join(f"{count} {op}" for op, count in rewriter.narrowed.most_common(4))
        copies = keep_copies(graph, self.dtype) if self.keeps_copies else 0
        return Report(
            rewriter.narrowed.total(),
            f"{rewriter.narrowed.total()} nodes in {dtype_name(self.dtype)} ({ops}), {rewriter.casts - copies} casts; "
            f"{copies} weights have a 16-bit copy, which their updates write",
        )


@dataclass
class _Rewriter:
    graph: fx.Graph
    options: Autocast
    narrowed: Counter[str] = field(default_factory=Counter)
    """By op, how many nodes run in 16 bits."""
    casts: int = 0

    def __post_init__(self) -> None:
        self.dtype = self.options.dtype
        self._recorded = {node: _dtype(node) for node in self.graph.nodes}
        self._changed: set[fx.Node] = set()
        """Nodes whose value has another dtype than the recorded one, or depends on such a node."""
        self._cast_of: dict[tuple[fx.Node, torch.dtype], fx.Node] = {}

    def visit(self, node: fx.Node) -> None:
        """Cast the node's inputs as its op wants them, and infer its value again."""
        if node.target is mm_into_bucket and self._kind(node, "mm", "backward") == "white":
            self.visit(self._split_product(node))
        op = node.target if isinstance(node.target, OpOverload) else None
        if op is not None:
            self._cast_inputs(node, _name(op))
        elif isinstance(node.target, BlockCall):
            self._restore_inputs(node)
        if any(source in self._changed for source in node.all_input_nodes):
            self._infer(node)
        if op is not None:
            self._forget_casts(node)
            if _dtype(node) is self.dtype:
                self.narrowed[_name(op)] += 1

    def restore(self, live_out: frozenset[fx.Node]) -> None:
        """Cast what is read after the step to the dtype that was recorded; the cast `replaces` it."""
        end = next(iter(reversed(self.graph.nodes)))
        for node in sorted(live_out, key=lambda n: n.name):
            if (wanted := self._recorded[node]) is not None and _dtype(node) is not wanted:
                with self.graph.inserting_after(end):
                    end = self._new_cast(node, wanted, node)
                end.meta["replaces"] = node

    def _split_product(self, node: fx.Node) -> fx.Node:
        """Compute a product outside of its float32 bucket, so that it can be 16-bit; returns its node."""
        buffer, a, b, first = node.args
        with self.graph.inserting_before(node):
            product = self.graph.create_node("call_function", aten.mm.default, (a, b), {}, "mm")
        copied_keys = ("source", "tag", "float32", "period")
        product.meta = {
            "role": "backward",
            **{key: node.meta[key] for key in copied_keys if key in node.meta},
        }
        product.meta["val"] = infer(product)
        self._recorded[product] = self._recorded[node]
        node.target, node.args = copy_into_bucket, (buffer, product, first)
        return product

    # --- what an op wants ------------------------------------------------------------------------------

    def _take_narrow_gradient(self, update: fx.Node) -> None:
        """Let an update read a 16-bit sum of gradients itself, without the cast that cast_all_reduce has inserted."""
        cast: Any = update.args[1]
        if cast.target is not aten._to_copy.default or _dtype(source := cast.args[0]) is not self.dtype:
            return
        node = cast.next
        while node is not update:
            if storage(source) in map(storage, mutated_inputs(node)):
                return
            node = node.next
        update.update_arg(1, source)
        if not cast.users and cast not in self.options.live_out:
            self.graph.erase_node(cast)

    def _cast_inputs(self, node: fx.Node, name: str) -> None:
        if node.target in UPDATES:
            self._take_narrow_gradient(node)
            return
        if node.target in _CONVERTING or not any(_is_float(source) for source in node.all_input_nodes):
            return
        mutated = {_dtype(n) for n in mutated_inputs(node)}
        # A cast is a copy: a view, and an op that mutates a 16-bit value, must work on the memory that they are given.
        is_bound = is_view(node) or self.dtype in mutated
        kind = "gray" if is_bound else self._kind(node, name)
        if kind == "gray" and self.options.is_pure and not (is_bound or mutated or name in _MIXED):
            kind = "white"
        if kind == "white":
            self._cast_arguments(node, lambda argument, _: None if argument in _STATISTICS else self.dtype)
        elif kind == "gray":
            self._match_inputs(node, name, mutated)
        else:
            self._cast_arguments(node, lambda _, source: self._recorded[source])

    def _restore_inputs(self, node: fx.Node) -> None:
        """Branches and loops run in the precision that was recorded."""

        def restored(source: fx.Node) -> fx.Node:
            wanted = self._recorded[source]
            if wanted is None or not _is_float(source) or _dtype(source) is wanted:
                return source
            return self._cast(source, wanted, node)

        node.args = fx.map_arg(node.args, restored)

    def _kind(self, node: fx.Node, name: str, role: str = "") -> str:
        role = role or node.meta["role"]
        if role not in ("forward", "backward") or node.meta.get("float32"):
            return "black"
        if self.options.guarded_only and node.meta.get("tag") != "fp16_guard":
            return "black"
        if any(self._recorded[n] is torch.float64 for n in node.all_input_nodes):
            return "black"
        return self.options.lists.kind(name, role == "backward")

    def _match_inputs(self, node: fx.Node, name: str, mutated: set[torch.dtype | None]) -> None:
        """Cast inputs of different precision to one: float32, or that of the memory that the op writes to."""
        if (narrow := _MIXED.get(name)) is not None:
            arguments = _arguments(node)
            has_narrow = self.options.is_pure or any(_dtype(arguments[a]) is self.dtype for a in narrow)
            self._cast_arguments(
                node, lambda a, source: self.dtype if has_narrow and a in narrow else self._recorded[source]
            )
            return
        inputs = [n for n in node.all_input_nodes if _is_float(n) and n.meta["val"].dim() > 0]
        if len({_dtype(n) for n in inputs}) > 1:
            wanted = self.dtype if self.dtype in mutated else torch.float32
            self._cast_arguments(node, lambda _, source: wanted if source in inputs else None)

    # --- casts -----------------------------------------------------------------------------------------

    def _cast_arguments(self, node: fx.Node, wanted: Callable[[str, fx.Node], torch.dtype | None]) -> None:
        """Cast the inputs that are floats of another dtype; `wanted(argument, input)` is None for any dtype."""
        mutated = set(mutated_inputs(node))

        def converted(argument: str, source: fx.Node) -> fx.Node:
            dtype = wanted(argument, source)
            if dtype is None or source in mutated or not _is_float(source) or _dtype(source) is dtype:
                return source
            return self._cast(source, dtype, node)

        names = [a.name for a in node.target._schema.arguments]  # type: ignore[union-attr]
        node.args = tuple(
            fx.map_arg(value, partial(converted, name)) for name, value in zip(names, node.args, strict=False)
        )
        node.kwargs = {
            name: fx.map_arg(value, partial(converted, name)) for name, value in node.kwargs.items()
        }

    def _cast(self, source: fx.Node, dtype: torch.dtype, user: fx.Node) -> fx.Node:
        if (known := self._cast_of.get((source, dtype))) is not None:
            return known
        if source.op == "call_function" and source.target in _VIEWS:  # so that w and w.t() are cast once
            base = self._cast(source.args[0], dtype, user)  # type: ignore[arg-type]
            with self.graph.inserting_before(user):
                cast = self._new_node(source.target, (base, *source.args[1:]), source.kwargs, source, user)
        else:
            with self.graph.inserting_before(user):
                cast = self._new_cast(source, dtype, user)
        self._cast_of[source, dtype] = cast
        if dtype is torch.float32:  # exact: the way back is the source itself
            self._cast_of[cast, _required(source)] = source
        return cast

    def _new_cast(self, source: fx.Node, dtype: torch.dtype, like: fx.Node) -> fx.Node:
        self.casts += 1
        cast = self._new_node(aten._to_copy.default, (source,), {"dtype": dtype}, source, like)
        cast._rename(f"to_{dtype_name(dtype)}")
        return cast

    def _new_node(
        self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], source: fx.Node, like: fx.Node
    ) -> fx.Node:
        """A node at the insertion point, with the value of `source` in another dtype, for the user `like`."""
        node = self.graph.create_node("call_function", target, args, kwargs, target._opname)
        role = like.meta["role"] if like.meta["role"] in ("forward", "backward") else "backward"
        node.meta = {"role": role, "source": like.meta.get("source")}
        node.meta["val"] = infer(node)
        self._recorded[node] = self._recorded[source]
        self._changed.add(node)
        return node

    def _forget_casts(self, node: fx.Node) -> None:
        """A value that the node mutates must be cast again."""
        for mutated in mutated_inputs(node):
            memory = storage(mutated)
            self._cast_of = {key: cast for key, cast in self._cast_of.items() if storage(key[0]) != memory}

    def _infer(self, node: fx.Node) -> None:
        if isinstance(node.target, OpOverload) and not node.target._schema.returns:
            return
        node.meta["val"] = infer(node)
        self._changed.add(node)


def narrow_nodes(graph: fx.Graph, autocast: Autocast, nodes: Collection[fx.Node]) -> set[fx.Node]:
    """Those of the nodes whose values will be 16-bit."""
    copied = fx.Graph()
    copy_of: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        copy_of[node] = copied.node_copy(node, copy_of.__getitem__)
    autocast.run(copied)
    return {node for node in nodes if _dtype(copy_of[node]) is autocast.dtype}


def _name(op: OpOverload) -> str:
    """convolution: the name without namespace and overload."""
    return op._schema.name.partition("::")[2]


def is_view(node: fx.Node) -> bool:
    """True if a result aliases an input that the op does not mutate."""
    returns = node.target._schema.returns if isinstance(node.target, OpOverload) else ()
    return any(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def _arguments(node: fx.Node) -> dict[str, Any]:
    names = [a.name for a in node.target._schema.arguments]  # type: ignore[union-attr]
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def _dtype(node: fx.Node) -> torch.dtype | None:
    """The dtype of the node's value, or of the first of several."""
    value = node.meta.get("val")
    if isinstance(value, tuple | list):
        value = next((part for part in value if isinstance(part, torch.Tensor)), None)
    return value.dtype if isinstance(value, torch.Tensor) else None


def _required(node: fx.Node) -> torch.dtype:
    dtype = _dtype(node)
    assert dtype is not None, f"{node.name} has no tensor value"
    return dtype


def _is_float(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_floating_point()
