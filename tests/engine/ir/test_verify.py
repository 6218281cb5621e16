"""verify: the verifier of each op finds wrong arguments, and accepts right ones."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from argosy.engine.errors import ProgramError
from argosy.engine.ir.verify import verify
from argosy.engine.ops.add_act import act_backward, act_backward_, add_act, add_act_
from argosy.engine.ops.batch_norm import update_running_stats
from argosy.engine.ops.bn_act import bn_act
from argosy.engine.ops.collectives import all_reduce_fused, broadcast_fused, gather_rows
from argosy.engine.ops.dgc import dgc_all_reduce
from argosy.engine.ops.gradient_buckets import bucket_view, copy_into_bucket, mm_into_bucket
from argosy.engine.ops.op_spec import OpSpec
from argosy.engine.ops.recurrent import recurrent
from argosy.engine.ops.updates import FUSED, update_op

sgd, momentum, adam = (update_op(name) for name in ("sgd", "momentum", "adam"))
fused_momentum = FUSED[momentum]
Build = Callable[[Callable[..., fx.Node]], tuple[Any, tuple[Any, ...]]]


def verified(build: Build) -> None:
    """Verify a graph of one call; `build` gets a function that adds an input, and returns the op and its arguments."""
    graph, mode = fx.Graph(), FakeTensorMode()

    def new(*shape: int, dtype: torch.dtype = torch.float32) -> fx.Node:
        node = graph.placeholder(f"x{len(graph.nodes)}")
        with mode:
            node.meta = {"val": torch.empty(shape, dtype=dtype), "role": "forward"}
        return node

    target, args = build(new)
    call = graph.call_function(target, args)
    call.meta = {"role": "optimize", "val": None, "source": "train.py:7 in step"}
    verify(graph)


def twice(x: fx.Node, *rest: Any) -> tuple[fx.Node, ...]:
    return (x, x, *rest)


def dy_is_ref(new: Callable[..., fx.Node]) -> tuple[Any, tuple[Any, ...]]:
    x = new(6)
    return act_backward_, (x, None, x, "relu", 1.0)


def compressed(
    new: Callable[..., fx.Node], *shapes: int, sparsity: float = 0.9
) -> tuple[Any, tuple[Any, ...]]:
    """dgc_all_reduce of one parameter: gradient, parameter, velocity and residual have these shapes."""
    lists = [[new(shape)] for shape in shapes]
    numbers = [0.0], [0.0], [0.0], 0, 1, [sparsity]
    return dgc_all_reduce, (*lists, new(1, dtype=torch.int64), "dp", 0.9, False, *numbers, "g")


RIGHT: dict[str, Build] = {
    "dgc": lambda new: compressed(new, 3, 3, 3, 3),
    "sgd": lambda new: (sgd, (new(3), new(3), new(1), 1.0, 0.0)),
    "adam": lambda new: (adam, (new(3), new(3), new(3), new(3), new(1), new(1), 1.0, 0.9, 0.9, 1e-8)),
    "fused": lambda new: (
        fused_momentum,
        (
            [new(3), new(2)],
            [new(3), new(2)],
            [new(3), new(2)],
            new(1),
            [1.0, 1.0],
            0.9,
            False,
            [0.0, 0.0],
            [],
        ),
    ),
    "copy": lambda new: (copy_into_bucket, (new(64), new(3, 5), 49)),
    "add a bias": lambda new: (add_act, (new(6, 8), new(8), "relu", 1.0)),
    "rows": lambda new: (gather_rows, (new(5, 4), new(5, dtype=torch.int64), "dp")),
    "span": lambda new: (all_reduce_fused, (new(64), 0, 64, "dp", "g")),
}
WRONG: list[tuple[str, Build]] = [
    ("residual is float32[4], and param is float32[3]", lambda new: compressed(new, 3, 3, 3, 4)),
    ("a sparsity, from 0 to below 1", lambda new: compressed(new, 3, 3, 3, 3, sparsity=1.0)),
    ("grad is float32[4], and param is float32[3]", lambda new: (sgd, (new(3), new(4), new(1), 1.0, 0.0))),
    ("rate is float32[2]: it must have one", lambda new: (sgd, (new(3), new(3), new(2), 1.0, 0.0))),
    ("param and grad share memory, and param is", lambda new: (sgd, (*twice(new(3)), new(1), 1.0, 0.0))),
    (
        "velocity is float32[2], and param is float32[3]",
        lambda new: (momentum, (new(3), new(3), new(2), new(1), 1.0, 0.9, False, 0.0)),
    ),
    (
        "moment1 and moment2 share memory",
        lambda new: (adam, (new(3), new(3), *twice(new(3)), new(1), new(1), 1.0, 0.9, 0.9, 1e-8)),
    ),
    (
        "velocity has 1 elements, and param has 2",
        lambda new: (
            fused_momentum,
            ([new(3), new(2)], [new(3), new(2)], [new(3)], new(1), [1.0, 1.0], 0.9, False, [0.0, 0.0], []),
        ),
    ),
    (
        "grad is float32[3], and param is float32[2]: they must have the same shape (element 1)",
        lambda new: (
            fused_momentum,
            (
                [new(3), new(2)],
                [new(3), new(3)],
                [new(3), new(2)],
                new(1),
                [1.0, 1.0],
                0.9,
                False,
                [0.0] * 2,
                [],
            ),
        ),
    ),
    ("elements 50 to 65 are not inside of", lambda new: (copy_into_bucket, (new(64), new(3, 5), 50))),
    ("it must have one dimension, and the dtype", lambda new: (bucket_view, (new(8, 8), new(3), 0))),
    (
        "it must have one dimension, and the dtype torch.float64",
        lambda new: (mm_into_bucket, (new(64), *(new(2, 2, dtype=torch.float64) for _ in range(2)), 0)),
    ),
    ("they must be matrices that can be", lambda new: (mm_into_bucket, (new(64), new(2, 3), new(2, 3), 0))),
    ("elements 62 to 66 are not inside", lambda new: (mm_into_bucket, (new(64), new(2, 3), new(3, 2), 62))),
    ("elements 60 to 70 are not inside", lambda new: (all_reduce_fused, (new(64), 60, 10, "dp", "g"))),
    ("act is 'swoosh': it must be one of", lambda new: (add_act, (new(6, 8), new(8), "swoosh", 1.0))),
    ("b must have the dtype and the last", lambda new: (add_act, (new(6, 8), new(6), "relu", 1.0))),
    ("b must have the dtype", lambda new: (add_act, (new(6), new(6, dtype=torch.float64), "relu", 1.0))),
    ("a and b share memory, and a is written", lambda new: (add_act_, (*twice(new(6)), "relu", 1.0))),
    (
        "ref is float32[5], and dy is float32[6]",
        lambda new: (act_backward, (new(6), None, new(5), "relu", 1.0)),
    ),
    ("dy and ref share memory", dy_is_ref),
    (
        "other is float32[2, 4], and x is float32[2, 3]",
        lambda new: (bn_act, (new(2, 3), new(3), new(3), new(2, 4), 1e-5, "relu")),
    ),
    ("there are 2 tensors and 1 sources", lambda new: (broadcast_fused, ([new(3), new(3)], [0], "dp", "w"))),
    (
        "rows must have a row for each id",
        lambda new: (gather_rows, (new(4, 4), new(5, dtype=torch.int64), "dp")),
    ),
    ("and ids be int64", lambda new: (gather_rows, (new(5, 4), new(5), "dp"))),
    (
        "batch_mean is float32[4], and mean is float32[3]",
        lambda new: (update_running_stats, (new(3), new(3), new(4), new(3), 0.9, 1e-5, 8)),
    ),
    (
        "kind is 'qrnn': it must be one of lstm",
        lambda new: (recurrent, (new(2, 3, 4), [new(1, 2, 4)], [], "qrnn", True, False, True)),
    ),
]


@pytest.mark.parametrize("name", RIGHT)
def test_right_arguments_are_accepted(name: str) -> None:
    verified(RIGHT[name])


@pytest.mark.parametrize(("message", "build"), WRONG, ids=[message for message, _ in WRONG])
def test_wrong_arguments_are_reported_with_the_node_and_the_op(message: str, build: Build) -> None:
    with pytest.raises(ProgramError) as caught:
        verified(build)
    assert message in str(caught.value)
    assert "(train.py:7 in step) calls argosy." in str(caught.value)


def test_every_update_of_the_optimizer_has_a_verifier() -> None:
    updates = [op for op in OpSpec.known if {"rate", "param"} <= {a.name for a in op._schema.arguments}]
    assert len(updates) >= 4
    assert all(OpSpec.known[op].verify is not None for op in updates)
