"""Grids and sampling are torch's."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import default_main_program
from argosy.nn import functional


def test_grids_and_samples_are_torch_s(agree: Callable[..., None]) -> None:
    agree(
        lambda x, theta: [
            functional.affine_grid(theta, [2, 3, 4, 5]),
            functional.affine_grid(theta, [2, 3, 4, 5], align_corners=False),
            functional.grid_sample(x, functional.affine_grid(theta, [2, 3, 4, 5])),
            functional.grid_sample(
                x, functional.affine_grid(theta, [2, 3, 2, 2]), "nearest", "border", False
            ),
        ],
        lambda x, theta: [
            F.affine_grid(theta, [2, 3, 4, 5], align_corners=True),
            F.affine_grid(theta, [2, 3, 4, 5], align_corners=False),
            F.grid_sample(x, F.affine_grid(theta, [2, 3, 4, 5], align_corners=True), align_corners=True),
            F.grid_sample(
                x, F.affine_grid(theta, [2, 3, 2, 2], align_corners=True), "nearest", "border", False
            ),
        ],
        (2, 3, 6, 6),
        (2, 2, 3),
        rtol=1e-4,
    )


def test_unknown_arguments_raise() -> None:
    x = default_main_program().data("x", [2, 2, 3], "float32")
    assert x.dtype == torch.float32
    with pytest.raises(ConfigError, match=r"give \[N, C, H, W\]"):
        functional.affine_grid(x, [2, 3])
    with pytest.raises(ConfigError, match="use bilinear or nearest"):
        functional.grid_sample(x, x, "cubic")
