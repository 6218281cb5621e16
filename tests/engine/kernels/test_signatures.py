"""Kernels that take pointers: whatever is not what they expect is rejected before the call."""

# SPDX-License-Identifier: Apache-2.0
import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from argosy.engine import kernels
from argosy.engine.ops import add_act, bn_act, relu_depthwise
from argosy.engine.ops.updates import FUSED, update_op
from argosy.engine.ps.table.storage import HashIndex

pytestmark = pytest.mark.skipif(kernels.unavailable() is not None, reason=str(kernels.unavailable()))
ROOT = Path(__file__).parents[3] / "argosy"
MASK = [True, True, True]
SHARED = torch.ones(4, 3, 8, 8)


def image(*shape: int) -> Tensor:
    return torch.randn(shape or (4, 3, 8, 8))


def norm(**other: Any) -> Any:
    given = {"x": image(), "weight": torch.ones(3), "bias": torch.zeros(3), "other": None, **other}
    return bn_act.bn_act(*given.values(), 1e-5, given.pop("act", "relu"))


def again(**other: Any) -> Any:
    given = {
        "x": image(),
        "weight": torch.ones(3),
        "bias": torch.zeros(3),
        "other": None,
        "mean": torch.zeros(3),
        "invstd": torch.ones(3),
        "act": "relu",
        **other,
    }
    return bn_act.bn_act_recompute(*given.values())


def norm_backward(op: Callable[..., Any] = bn_act.bn_act_backward, **other: Any) -> Any:
    given = {
        "dy": image(),
        "more": None,
        "x": image(),
        "y": None,
        "weight": torch.ones(3),
        "bias": torch.zeros(3),
        "mean": torch.zeros(3),
        "invstd": torch.ones(3),
        "act": "relu",
        "mask": MASK,
        **other,
    }
    return op(*given.values())


def overlapping() -> tuple[Tensor, Tensor]:
    """Two tensors of one shape, the second 4 elements behind the first in the same memory."""
    flat = torch.randn(4 * 3 * 64 + 4)
    return flat[:-4].view(4, 3, 8, 8), flat[4:].view(4, 3, 8, 8)


FIRST, SECOND = overlapping()


def updated(**other: Any) -> Any:
    given: dict[str, Any] = {"params": [image()], "grads": [image()], "velocities": [image()], **other}
    each = len(given["params"])
    numbers: Any = torch.ones(1), [1.0] * each, 0.9, False, [0.0] * each, []
    return FUSED[update_op("momentum")](*given.values(), *numbers)


def depthwise_backward(**other: Any) -> Any:
    given = {"dy": image(), "x": image(), "weight": torch.randn(3, 1, 3, 3), **other}
    return relu_depthwise.depthwise_backward(*given.values(), [1, 1], [1, 1], MASK[:2])


WRONG: dict[str, Callable[[], Any]] = {
    "bn_act: other of one element": lambda: norm(other=torch.ones(1)),
    "bn_act: other that is smaller": lambda: norm(other=image(4, 3, 8, 7)),
    "bn_act: other in float64": lambda: norm(other=image().double()),
    "bn_act: x in float64": lambda: norm(x=image().double()),
    "bn_act: x of one dimension": lambda: norm(x=image(12)),
    "bn_act: a weight that is short": lambda: norm(weight=torch.ones(2)),
    "bn_act: a bias in int64": lambda: norm(bias=torch.ones(3, dtype=torch.int64)),
    "bn_act: an unknown activation": lambda: bn_act.bn_act(image(), None, None, None, 1e-5, "gelu"),
    "bn_act_recompute: no statistics for a channel": lambda: again(mean=torch.zeros(1)),
    "bn_act_recompute: other of one element": lambda: again(other=torch.ones(1)),
    "bn_act_recompute: no element": lambda: again(x=image(0, 3, 8, 8)),
    "bn_act_backward: a small dy": lambda: norm_backward(dy=torch.ones(1, 3, 8, 8)),
    "bn_act_backward: a small second gradient": lambda: norm_backward(more=torch.ones(1)),
    "bn_act_backward: a small y": lambda: norm_backward(y=image(1, 1, 1, 1)),
    "bn_act_backward: statistics of another size": lambda: norm_backward(invstd=torch.ones(1)),
    "bn_act_backward: dy in bfloat16": lambda: norm_backward(dy=image().bfloat16()),
    "bn_act_backward: no element": lambda: norm_backward(dy=image(0, 3, 8, 8), x=image(0, 3, 8, 8)),
    "bn_act_backward_: a small dy": lambda: norm_backward(bn_act.bn_act_backward_, dy=image(1, 3, 8, 8)),
    "bn_act_backward_: a dy of one element": lambda: norm_backward(
        bn_act.bn_act_backward_, dy=torch.ones(1, 1, 1, 1)
    ),
    "bn_act_backward_: dy overlaps x": lambda: norm_backward(
        bn_act.bn_act_backward_, **dict(zip(("dy", "x"), overlapping(), strict=True))
    ),
    "add_act: a in float64": lambda: add_act.add_act(image().double(), image().double(), "relu", 1.0),
    "add_act: b in int64": lambda: add_act.add_act(image(), image().long(), "relu", 1.0),
    "add_act: b that is no part of a": lambda: add_act.add_act(image(), image(3), "relu", 1.0),
    "add_act: an unknown activation": lambda: add_act.add_act(image(), image(), "none", 1.0),
    "add_act_: a with gaps": lambda: add_act.add_act_(image()[:, :, :, :4], image(4, 3, 8, 4), "relu", 1.0),
    "add_act_: every element of a is the same": lambda: add_act.add_act_(
        torch.ones(1).expand(4, 5), image(4, 5), "relu", 1.0
    ),
    "add_act_: a overlaps b": lambda: add_act.add_act_(*overlapping(), "relu", 1.0),
    "act_backward: a small dy": lambda: add_act.act_backward(torch.ones(1), None, image(66_682), "relu", 1.0),
    "act_backward: a small second gradient": lambda: add_act.act_backward(
        image(), torch.ones(1, 1, 1, 1), image(), "relu", 1.0
    ),
    "act_backward_: a small ref": lambda: add_act.act_backward_(image(), None, torch.ones(1), "relu", 1.0),
    "act_backward_: dy overlaps ref": lambda: add_act.act_backward_(FIRST, None, SECOND, "relu", 1.0),
    "depthwise_backward: a small dy": lambda: depthwise_backward(dy=image(1, 3, 8, 8)),
    "depthwise_backward: a weight of another size": lambda: depthwise_backward(
        weight=torch.randn(2, 1, 3, 3)
    ),
    "depthwise_backward: filters without rows": lambda: relu_depthwise.depthwise_backward(
        image(4, 3, 9, 8), image(), torch.ones(3, 1, 0, 1), [1, 1], [0, 0], MASK[:2]
    ),
    "fused_momentum: a small gradient": lambda: updated(grads=[image(1)]),
    "fused_momentum: a small state": lambda: updated(velocities=[image(1)]),
    "fused_momentum: state that is the parameter": lambda: updated(params=[SHARED], velocities=[SHARED]),
    "hash_index: ids in int32": lambda: HashIndex().insert(torch.arange(9, dtype=torch.int32)),
    "hash_index: every second id": lambda: HashIndex().find(torch.arange(9)[::2]),
    "hash_index: a matrix": lambda: HashIndex().erase(torch.arange(8).reshape(2, 4)),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_argument_is_rejected(what: str) -> None:
    with pytest.raises(ValueError):
        WRONG[what]()


def test_the_message_names_the_kernel_the_argument_what_it_is_and_what_it_must_be() -> None:
    with pytest.raises(ValueError) as caught:
        norm(other=torch.ones(1))
    assert str(caught.value) == (
        "argosy_bn_act_forward: other is float32[1] of strides [1] on cpu; it must be float32, or bfloat16 as x, on "
        "the CPU, of the shape of the first argument, [N, C, …], not empty, contiguous or channels_last like it (x is "
        "float32[4, 3, 8, 8] of strides [192, 64, 8, 1] on cpu)"
    )


def test_nothing_is_written_before_an_error() -> None:
    w, v = image(), image()
    before = w.clone(), v.clone()
    with pytest.raises(ValueError, match="overlaps another one in memory"):
        updated(params=[w, w], grads=[image(), image()], velocities=[v, image()])
    assert torch.equal(w, before[0])
    assert torch.equal(v, before[1])


@pytest.mark.parametrize("shape", [(5, 1, 4, 4), (1, 3, 4, 4), (5, 3, 1, 1), (5, 3)])
def test_sizes_of_one_whose_strides_say_nothing_are_taken(shape: tuple[int, ...]) -> None:
    x = image(*shape)
    other = image(*shape)
    if len(shape) == 4:
        other = other.contiguous(memory_format=torch.channels_last)
    channels = torch.ones(shape[1]), torch.zeros(shape[1])
    y, mean, invstd = bn_act.bn_act(x, *channels, other, 1e-5, "relu")
    plain = torch.nn.functional.batch_norm(x, None, None, *channels, True) + other
    torch.testing.assert_close(y, torch.relu(plain), rtol=1e-4, atol=1e-5)
    bn_act.bn_act_backward_(image(*shape), None, x, y, *channels, mean, invstd, "relu", MASK)


def test_an_image_without_pixels_gives_what_padding_gives() -> None:
    x, weight = torch.empty(2, 3, 0, 5), torch.ones(3, 1, 2, 2)
    y = relu_depthwise.depthwise(x, weight, [1, 1], [1, 1])
    assert torch.equal(y, torch.zeros(2, 3, 1, 6))
    dx, dweight = relu_depthwise.depthwise_backward(y, x, weight, [1, 1], [1, 1], MASK[:2])
    assert dx.shape == x.shape
    assert torch.equal(dweight, torch.zeros(3, 1, 2, 2))


def test_no_other_file_passes_pointers_of_tensors() -> None:
    """`data_ptr` outside of the two files with descriptions would be an unchecked call."""
    allowed = {
        "engine/kernels/signatures.py",
        "engine/kernels/updates.py",
        "engine/runtime/atomic_files.py",  # safetensors reads as many bytes as the tensor has
        "engine/collective/host_memory.py",  # maps the pages of a dense tensor, as many as it has
        "engine/ps/rpc/wire.py",  # as many bytes as a contiguous tensor has
    }
    users = set()
    for path in ROOT.rglob("*.py"):
        if "data_ptr" not in (source := path.read_text()):
            continue
        calls = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Attribute)]
        if any(call.attr == "data_ptr" for call in calls):
            users.add(path.relative_to(ROOT).as_posix())
    assert users <= allowed, users - allowed
