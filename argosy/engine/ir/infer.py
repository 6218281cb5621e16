"""The value of a node: by shape inference, or by constant folding.

infer               runs the op on the fake tensors of its inputs
value_of_constant   runs the ops that it depends on, if those are all constant: `torch.triu(torch.full((5, 5), -inf))`

Code may read the value of a constant while a program is built (`if (mask == causal).all()`): it is the same in every
run.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from argosy.engine.ir.effects import is_collective, is_random, mutated_inputs, storage, storages
from argosy.engine.ir.shape_functions import fake_result
from argosy.engine.ir.size_env import SizeEnv


def infer(node: fx.Node) -> Any:
    """The value for `node.meta["val"]`; raises torch's error if the op rejects its inputs. Adds no assumptions."""
    args, kwargs = tree_map_only(fx.Node, lambda n: n.meta["val"], (node.args, node.kwargs))
    fakes = [v for v in tree_leaves((args, kwargs, node.meta.get("val"))) if isinstance(v, FakeTensor)]
    if not fakes:
        return node.target(*args, **kwargs)  # type: ignore[operator]  # operator.mul and the like, on sizes
    mode = fakes[0].fake_mode
    with _shapes_only(mode), preserved_versions(node):
        return fake_result(node.target, args, kwargs, mode)


def move_views(node: fx.Node, memory: int | None) -> None:
    """Infer again the users that alias `memory`, the storage of the node's old value: its parts, and views of it."""
    for user in node.users:
        if memory in storages(user):
            user.meta["val"] = infer(user)
            move_views(user, memory)


@contextmanager
def _shapes_only(mode: FakeTensorMode) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(enable_python_dispatcher())
        if isinstance(mode.shape_env, SizeEnv):
            stack.enter_context(mode.shape_env.muted())
        stack.enter_context(mode)
        stack.enter_context(torch.no_grad())
        yield


@contextmanager
def preserved_versions(node: fx.Node) -> Iterator[None]:
    """Keep the version counters of mutated fake tensors, so that autograd's graph of the values stays valid."""
    mutated = [n.meta["val"] for n in mutated_inputs(node)]
    if not mutated:
        yield
        return
    with _unsafe_preserve_version_counter(tuple(mutated)):
        yield


def value_of_constant(node: fx.Node, constants: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
    """The node's value if it depends on no feed, variable, random number or unknown size, else None."""
    ordered = _ancestors(node)
    if ordered is None:
        return None
    values: dict[fx.Node, Any] = {}
    with _disable_current_modes(), torch.no_grad():
        for source in ordered:
            if source.op == "get_attr":
                values[source] = constants[str(source.target)].clone()
                continue
            args, kwargs = tree_map_only(fx.Node, values.__getitem__, (source.args, source.kwargs))
            values[source] = source.target(*args, **kwargs)  # type: ignore[operator]  # an op, checked by _ancestors
    value = values[node]
    return value if isinstance(value, torch.Tensor) else None


def _ancestors(node: fx.Node) -> list[fx.Node] | None:
    """The node and its ancestors, in order; None if they are not all constant."""
    ancestors, stack = {node}, [node]
    while stack:
        current = stack.pop()
        if current.op == "placeholder" or is_random(current) or is_collective(current):
            return None
        new = [source for source in current.all_input_nodes if source not in ancestors]
        ancestors.update(new)
        stack += new
    memory = {storage(ancestor) for ancestor in ancestors} - {None}
    ordered = []
    for other in node.graph.nodes:
        if other not in ancestors and any(storage(source) in memory for source in mutated_inputs(other)):
            return None  # mutated by a node that is not an ancestor
        if other in ancestors:
            ordered.append(other)
    return ordered
