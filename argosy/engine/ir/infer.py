"""What a node gives, computed from what its inputs give: its op runs on fake tensors."""

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

from argosy.engine.ir.effects import changed_inputs
from argosy.engine.ir.shape_functions import fake_result
from argosy.engine.ir.size_env import SizeEnv


def infer(node: fx.Node) -> Any:
    """The value for `node.meta["val"]`; torch's error if the op rejects its inputs. Assumes nothing about sizes."""
    args, kwargs = tree_map_only(fx.Node, lambda n: n.meta["val"], (node.args, node.kwargs))
    fakes = [v for v in tree_leaves((args, kwargs, node.meta.get("val"))) if isinstance(v, FakeTensor)]
    if not fakes:
        return node.target(*args, **kwargs)  # type: ignore[operator]  # operator.mul and the like, on sizes
    mode = fakes[0].fake_mode
    with _shapes_only(mode), unchanged(node):
        return fake_result(node.target, args, kwargs, mode)


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
def unchanged(node: fx.Node) -> Iterator[None]:
    """An op that writes in place does not count as a change: autograd's history of the values stays valid."""
    written = [n.meta["val"] for n in changed_inputs(node)]
    if not written:
        yield
        return
    with _unsafe_preserve_version_counter(tuple(written)):
        yield
