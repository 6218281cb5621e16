"""seeded_random, seeded_dropout: one seed gives the same numbers; torch's generator is unchanged; distributions."""

# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from argosy.engine.ops.seeded import SPECS, seeded_dropout

RANDOM, DROPOUT = (spec.kernel for spec in SPECS)
CPU = torch.device("cpu")


def test_a_seed_determines_the_numbers_and_leaves_torchs_generator_alone() -> None:
    state = torch.get_rng_state()
    first = RANDOM([40, 50], 3, True, dtype=torch.float32, device=CPU)
    assert torch.equal(first, RANDOM([40, 50], 3, True, dtype=torch.float32, device=CPU))
    assert not torch.equal(first, RANDOM([40, 50], 4, True, dtype=torch.float32, device=CPU))
    assert torch.equal(first, torch.randn(40, 50, generator=torch.Generator().manual_seed(3)))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_uniform_numbers_have_the_dtype_and_fill_their_range(dtype: torch.dtype) -> None:
    drawn = RANDOM([100, 100], 7, False, dtype=dtype, device=CPU)
    assert drawn.dtype is dtype
    assert drawn.min() >= 0
    assert drawn.double().mean().item() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("p", [0.0, 0.25, 1.0])
def test_dropout_keeps_the_mean_and_one_mask(p: float) -> None:
    ones = torch.ones(100, 100)
    mask = seeded_dropout(ones, p, 5)
    assert torch.equal(mask, DROPOUT(ones, p, 5))
    assert (mask == 0).double().mean().item() == pytest.approx(p, abs=0.02)
    assert set(mask.unique().tolist()) <= {0.0, torch.tensor(1 / (1 - p)).item() if p < 1 else 0.0}
