"""All-reduce gradients in buckets: consecutive slots of a flat buffer, in the order of backward.

    before    s1 = all_reduce(g1) … s2 = all_reduce(g2)
    after     b  = gradient_buffer(…)
              p1 = copy_into_bucket(b, g1, 0) … p2 = copy_into_bucket(b, g2, 64)
              s  = all_reduce_fused(b, 0, 128)                starts when the last gradient of the bucket exists
              w  = wait(s)
              r1 = bucket_view(w, p1, 0);  r2 = bucket_view(w, p2, 64)

Buckets follow Paddle's rule: the gradients of a layer (the parameter's name up to its first dot) stay together;
layers are added, in the order of backward, until the bucket has at least `memory_mb` or more than `max_gradients`
gradients. Buckets of mixed dtypes are split by dtype; each dtype has a buffer. A slot begins at a multiple of 256
bytes; a matrix product is computed directly into its slot. Sparse gradients have no all_reduce and are not touched.
Paddle's names: `fuse_all_reduce_ops`, `fuse_grad_size_in_MB`, `_fuse_grad_size_in_TFLOPS`.
"""

# SPDX-License-Identifier: Apache-2.0
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import fx

from argosy.engine.ir.infer import infer
from argosy.engine.ir.periods import inherited
from argosy.engine.log import NOTICE, logger
from argosy.engine.ops.collectives import all_reduce, all_reduce_fused, wait
from argosy.engine.ops.gradient_buckets import bucket_view, copy_into_bucket, gradient_buffer, mm_into_bucket
from argosy.engine.passes.base import Pass, Report, new_collectives

aten = torch.ops.aten
_MIB = 1 << 20
_SLOT_BYTES = 256
_COPIES = (aten.clone.default, aten._to_copy.default)


@dataclass(frozen=True)
class FuseAllReduce(Pass):
    """See the module's picture."""

    name: ClassVar[str] = "fuse_all_reduce"

    memory_mb: float = 32
    """A bucket is full from this size on; 0 or less: one bucket per layer."""
    max_gradients: int = 50
    """A bucket is full with more gradients than these; 1 or less: any number."""
    one_by_one: bool = False
    """True: one bucket per gradient, still in the flat buffer."""
    shared_by: str = "dp"
    """The process group whose ranks may share the buffer's memory: all ranks, or those of a host ("dp/intra4")."""

    def run(self, graph: fx.Graph) -> Report:
        all_reduces = _in_order(graph)
        buckets = [part for bucket in self.buckets(all_reduces) for part in _split_at_readers(graph, bucket)]
        for members in _by_dtype([node for bucket in buckets for node in bucket]):
            self._fuse(graph, [bucket for bucket in buckets if bucket[0] in members])
        if len(buckets) < len(all_reduces):
            logger.log(
                NOTICE,
                "Find all_reduce operators: %d. To make the speed faster, some all_reduce ops are fused during "
                "training, after fusion, the number of all_reduce ops is %d.",
                len(all_reduces),
                len(buckets),
            )
        sizes = ", ".join(str(len(bucket)) for bucket in buckets[:10]) + (", …" if len(buckets) > 10 else "")
        text = f"{len(all_reduces)} all_reduce in {len(buckets)} buckets ({sizes})"
        return Report(len(buckets), text if all_reduces else "no all_reduce")

    def buckets(self, nodes: Sequence[fx.Node]) -> list[list[fx.Node]]:
        """The buckets, as lists of their all_reduce nodes."""
        if self.one_by_one:
            return [[node] for node in nodes]
        gradients = [(str(node.args[2]), _nbytes(node)) for node in nodes]
        merged = merged_layers(gradients, self.memory_mb, self.max_gradients)
        return [part for bucket in merged for part in _by_dtype([nodes[number] for number in bucket])]

    def _fuse(self, graph: fx.Graph, buckets: list[list[fx.Node]]) -> None:
        """Place the buckets, all of one dtype, in one flat buffer."""
        first_node = buckets[0][0]
        value = first_node.meta["val"]
        numel = sum(_slot_size(node) for bucket in buckets for node in bucket)
        name = f"@FUSEDVAR@@GRAD@{first_node.args[2]}"
        buffer_args = (numel, value.dtype, self.shared_by, name)
        place = {node: number for number, node in enumerate(graph.nodes)}
        earliest = min((node for bucket in buckets for node in bucket), key=place.__getitem__)
        with graph.inserting_before(earliest):
            buffer = _create(graph, gradient_buffer, buffer_args, earliest, value.fake_mode)
        offset = 0
        for bucket in buckets:
            offset = _fuse_bucket(graph, bucket, buffer, offset, place)


def _fuse_bucket(
    graph: fx.Graph, bucket: list[fx.Node], buffer: fx.Node, begin: int, place: dict[fx.Node, int]
) -> int:
    """Place one bucket at the elements from `begin` on; returns the end of the bucket."""
    last = max(bucket, key=place.__getitem__)
    slots = {}
    end = begin
    for node in bucket:
        with graph.inserting_before(node):
            slots[node] = _write_to_slot(graph, node, buffer, end), end - begin
        end += _slot_size(node)
    names = [str(node.args[2]) for node in bucket]
    what = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
    with graph.inserting_before(last):
        started = _create(graph, all_reduce_fused, (buffer, begin, end - begin, last.args[1], what), last)
    waits = {node: next(user for user in node.users if user.target is wait) for node in bucket}
    earliest = min(waits.values(), key=place.__getitem__)
    overlaps = place[earliest] > place[last]
    with graph.inserting_before(earliest) if overlaps else graph.inserting_after(started):
        view = arrived = _create(graph, wait, (started,), earliest)
    for node in bucket:
        with graph.inserting_after(view):
            view = _create(graph, bucket_view, (arrived, *slots[node]), waits[node])
        _replace(graph, waits[node], view)
        source = cast("fx.Node", node.args[0])
        graph.erase_node(node)
        if not source.users and (_is_product(source) or _is_copy(source)):
            graph.erase_node(source)
    return end


def _write_to_slot(graph: fx.Graph, node: fx.Node, buffer: fx.Node, offset: int) -> fx.Node:
    """Write a gradient to its slot; a matrix product without other readers is computed there."""
    source = cast("fx.Node", node.args[0])
    if _is_product(source) and list(source.users) == [node]:
        product = _create(graph, mm_into_bucket, (buffer, *source.args, offset), node)
        product.meta |= {
            key: source.meta[key] for key in ("tag", "float32") if key in source.meta
        }  # for autocast
        return product
    return _create(graph, copy_into_bucket, (buffer, _uncopied(node), offset), node)


def _is_product(node: fx.Node) -> bool:
    return node.target is aten.mm.default and not node.kwargs


def _is_copy(node: fx.Node) -> bool:
    """True for a copy that was inserted for the all-reduce only."""
    return node.target in _COPIES and bool(node.meta["role"] == "communicate")


def _create(
    graph: fx.Graph,
    target: torch._ops.OpOverload,
    args: tuple[Any, ...],
    like: fx.Node,
    fake_mode: Any = None,
) -> fx.Node:
    node = graph.create_node("call_function", target, args, {}, target._opname)
    node.meta = {"role": "communicate", "source": like.meta.get("source"), **inherited(like)}
    if fake_mode is None:
        node.meta["val"] = infer(node)
    else:  # there is no input to take the mode from
        with fake_mode:
            node.meta["val"] = target(*args)
    return node


def _replace(graph: fx.Graph, old: fx.Node, new: fx.Node) -> None:
    """Move the users and variables of `old` to `new`, and erase `old`."""
    for user in old.users:
        if user.meta.get("replaces") is old:
            user.meta["replaces"] = new
    new.meta["replaces"] = old.meta.get("replaces", old)
    new.meta["reduced"] = True
    old.replace_all_uses_with(new)
    graph.erase_node(old)


def _uncopied(node: fx.Node) -> fx.Node:
    """The gradient before a copy that was inserted for the all-reduce: writing to the slot is a copy already."""
    source = cast("fx.Node", node.args[0])
    return cast("fx.Node", source.args[0]) if _is_copy(source) else source


def _in_order(graph: fx.Graph) -> list[fx.Node]:
    """The all_reduce nodes in the order of backward; of one op's gradients the last first, as in Paddle."""
    place = {node: number for number, node in enumerate(graph.nodes)}

    def key(node: fx.Node) -> tuple[int, int]:
        gradient = _uncopied(node)
        if gradient.target is operator.getitem:
            producer, index = cast("tuple[fx.Node, int]", gradient.args)
            return place[producer], -index
        return place[gradient], 0

    return sorted(new_collectives(graph, all_reduce), key=key)


def merged_layers(
    gradients: Sequence[tuple[str, int]], memory_mb: float, max_gradients: int
) -> list[list[int]]:
    """The buckets of gradients, given by name and bytes in the order of backward, as lists of their numbers."""
    layers: dict[str, list[int]] = {}
    for number, (name, _) in enumerate(gradients):
        layers.setdefault(name.removesuffix("@GRAD").split(".", 1)[0], []).append(number)
    merged: list[list[int]] = []
    is_full = True
    for layer in layers.values():
        if is_full:
            merged.append([])
        merged[-1] += layer
        too_many = 1 < max_gradients < len(merged[-1])
        nbytes = sum(gradients[number][1] for number in merged[-1])
        is_full = memory_mb <= 0 or too_many or nbytes / _MIB >= memory_mb
    return merged


def _nbytes(node: fx.Node) -> int:
    value = node.meta["val"]
    return int(value.numel() * value.element_size())


def _slot_size(node: fx.Node) -> int:
    """The number of elements of a gradient's slot, padding included."""
    value = node.meta["val"]
    step = _SLOT_BYTES // value.element_size()
    return int(-(-value.numel() // step) * step)


def _by_dtype(bucket: list[fx.Node]) -> list[list[fx.Node]]:
    parts: dict[Any, list[fx.Node]] = {}
    for node in bucket:
        parts.setdefault((node.meta["val"].dtype, node.args[1]), []).append(node)
    return list(parts.values())


def _split_at_readers(graph: fx.Graph, bucket: list[fx.Node]) -> list[list[fx.Node]]:
    """Split a bucket where a sum is read before the next gradient exists, as after two `minimize` calls."""
    place = {node: number for number, node in enumerate(graph.nodes)}
    parts: list[list[fx.Node]] = []
    first_reader = -1
    for node in bucket:
        if place[node] > first_reader:
            parts.append([])
            first_reader = len(place)
        parts[-1].append(node)
        readers = [place[reader] for waiting in node.users for reader in waiting.users]
        first_reader = min([first_reader, *readers])
    return parts
