"""What a node gives, computed from what its inputs give: its op runs on fake tensors."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves, tree_map_only


def infer(node: fx.Node) -> Any:
    """The value for `node.meta["val"]`; torch's error if the op refuses its inputs."""
    args, kwargs = tree_map_only(fx.Node, lambda n: n.meta["val"], (node.args, node.kwargs))
    fakes = [v for v in tree_leaves((args, kwargs, node.meta.get("val"))) if isinstance(v, FakeTensor)]
    if not fakes:
        return node.target(*args, **kwargs)  # type: ignore[operator]  # sizes: operator.mul and the like
    with enable_python_dispatcher(), fakes[0].fake_mode, torch.no_grad():
        return node.target(*args, **kwargs)  # type: ignore[operator]  # an op, or operator.getitem
