"""merged, accumulate, reset: values, dtypes, memory formats, and what is rejected."""

# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from argosy.engine.ops.merge_gradients import SPECS, accumulate, merged, reset

VERIFY = {spec.target: spec.verify for spec in SPECS}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_steps_add_up_in_float32(dtype: torch.dtype) -> None:
    total, gradients = torch.zeros(3), [torch.full((3,), 0.1 * i, dtype=dtype) for i in (1, 2, 3)]
    accumulate([total], [gradients[0]])
    accumulate([total], [gradients[1]])
    result = merged(total, gradients[2], 0.5)
    expected = 0.5 * (gradients[0].float() + gradients[1].float() + gradients[2].float())
    assert result.dtype is dtype
    torch.testing.assert_close(result, expected.to(dtype))
    assert total.dtype is torch.float32
    reset([total])
    assert not total.any()


def test_the_result_has_the_memory_format_of_the_total() -> None:
    total = torch.zeros(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    gradient = torch.randn(2, 3, 4, 4)
    result = merged(total, gradient, 1.0)
    assert result.stride() == total.stride()
    assert torch.equal(result, gradient)


def test_shapes_that_differ_are_rejected() -> None:
    one, two = torch.zeros(3), torch.zeros(4)
    verify, verify_lists = VERIFY[merged], VERIFY[accumulate]
    assert verify is not None
    assert verify_lists is not None
    assert "must have the same shape" in verify({"total": one, "gradient": two})
    assert "share memory" in verify({"total": one, "gradient": one})
    assert "must have as many" in verify_lists({"totals": [one], "gradients": []})
    assert "must have the same shape" in verify_lists({"totals": [one], "gradients": [two]})
    assert verify_lists({"totals": [one], "gradients": [torch.ones(3)]}) == ""
