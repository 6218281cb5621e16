"""Shape inference: the value of a node, by running its op on the fake tensors of its inputs."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.utils._pytree import tree_leaves, tree_map_only

from argosy.engine.ir.effects import mutated_inputs, storages
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
