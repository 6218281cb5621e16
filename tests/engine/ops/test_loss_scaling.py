"""Loss scaling: overflows are found, and the scale follows Paddle's rule (update_loss_scaling_op.h, 2.0)."""

# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from argosy.engine.ops.loss_scaling import found_inf, update_loss_scaling


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("value", "expected"), [(1.0, 0.0), (float("inf"), 1.0), (-float("inf"), 1.0), (float("nan"), 1.0)]
)
def test_finds_what_is_not_finite(value: float, expected: float, dtype: torch.dtype) -> None:
    gradients = [torch.full((3, 4), 6e4, dtype=dtype), torch.zeros(5, dtype=dtype)]
    gradients[1][2] = value
    assert found_inf(gradients).tolist() == [expected]


def run(overflows: str, scale: float = 8.0, incr: int = 3, decr: int = 2) -> list[float]:
    """The scale after each step; x is a step with overflow."""
    state = torch.tensor([scale]), torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    scales = []
    for step in overflows:
        update_loss_scaling(*state, torch.tensor([float(step == "x")]), incr, decr, 2.0, 0.5)
        scales.append(state[0].item())
    return scales


@pytest.mark.parametrize(
    ("overflows", "expected"),
    [
        ("......", [8, 8, 16, 16, 16, 32]),
        ("xxxx", [8, 4, 4, 2]),
        ("x.x.", [8, 8, 8, 8]),  # a good step resets the count of bad ones
        ("..x...", [8, 8, 8, 8, 8, 16]),  # and the other way round
        ("xxxxxxxxxxxx", [8, 4, 4, 2, 2, 1, 1, 1, 1, 1, 1, 1]),
    ],
)
def test_the_scale_grows_and_shrinks_as_in_paddle(overflows: str, expected: list[float]) -> None:
    assert run(overflows) == expected


def test_the_scale_never_becomes_infinite() -> None:
    assert run("...", scale=3e38) == [torch.tensor(3e38).item()] * 3
