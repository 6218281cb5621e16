"""to_dtype: the names and objects that NumPy and Paddle accept."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest
import torch

from argosy.engine.ir.dtypes import to_dtype


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("float32", torch.float32),
        ("bfloat16", torch.bfloat16),
        ("float", torch.float64),  # NumPy's meaning, which is Paddle's
        ("double", torch.float64),
        ("half", torch.float16),
        ("int", torch.int64),
        ("bool", torch.bool),
        (int, torch.int64),
        (float, torch.float64),
        (np.float16, torch.float16),
        (np.dtype("int32"), torch.int32),
        (torch.uint8, torch.uint8),
    ],
)
def test_names_types_and_dtype_objects_are_accepted(given: Any, wanted: torch.dtype) -> None:
    assert to_dtype(given) is wanted


@pytest.mark.parametrize("given", ["float33", "complex64", None, 3, "str", [1]])
def test_anything_else_is_a_type_error_that_lists_the_names(given: Any) -> None:
    with pytest.raises(TypeError, match="is unknown; use one of float16, bfloat16, float32"):
        to_dtype(given)
