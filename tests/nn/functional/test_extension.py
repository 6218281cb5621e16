"""diag_embed, sequence_mask, gather_tree, alpha_dropout and temporal_shift."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

import numpy as np
import pytest
import torch

from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import default_main_program
from argosy.engine.runtime.executor import Executor
from argosy.nn import functional

Agree = Callable[..., None]


def test_masks_and_diagonals(agree: Agree) -> None:
    agree(
        lambda x, n: [
            functional.diag_embed(x, 1),
            functional.sequence_mask(n, 4),
            functional.sequence_mask(n, x.size(1), "float32"),
        ],
        lambda x, n: [
            torch.diag_embed(x, 1),
            (torch.arange(4) < n.unsqueeze(-1)).long(),
            (torch.arange(3) < n.unsqueeze(-1)).float(),
        ],
        (None, 3),
        ((None,), 5),
    )


def test_gather_tree_follows_the_parents() -> None:
    """The example of Paddle's documentation."""
    ids = np.array([[[2, 2], [6, 1]], [[3, 9], [6, 1]], [[0, 1], [9, 0]]])
    parents = np.array([[[0, 0], [1, 1]], [[1, 0], [1, 0]], [[0, 0], [0, 1]]])
    program = default_main_program()
    out = functional.gather_tree(
        program.data("ids", [3, 2, 2], "int64"), program.data("parents", [3, 2, 2], "int64")
    )
    (got,) = Executor().run(feed={"ids": ids, "parents": parents}, fetch_list=[out])
    np.testing.assert_array_equal(got, [[[2, 2], [1, 6]], [[3, 3], [6, 1]], [[0, 1], [9, 0]]])


def test_alpha_dropout_keeps_mean_and_variance_and_a_test_program_drops_nothing() -> None:
    program = default_main_program()
    out = functional.alpha_dropout(program.data("x", [None, 100], "float32"), 0.3)
    program.random_seed = 1
    for_test = program.clone(for_test=True)
    x = np.random.default_rng(0).standard_normal((500, 100)).astype("float32")
    exe = Executor()
    (drawn,) = exe.run(feed={"x": x}, fetch_list=[out])
    assert abs(drawn.mean()) < 0.02
    assert abs(drawn.std() - 1) < 0.02
    values, counts = np.unique(drawn, return_counts=True)
    assert abs(counts.max() / x.size - 0.3) < 0.01  # the dropped elements are all equal
    np.testing.assert_array_equal(exe.run(for_test, feed={"x": x}, fetch_list=[out])[0], x)
    assert values[counts.argmax()] < 0


def test_temporal_shift_moves_channels_by_a_frame(agree: Agree) -> None:
    def shifted(x: torch.Tensor) -> torch.Tensor:
        frames = x.reshape(2, 3, 4, 1, 1)
        out = frames.clone()
        out[:, :, 0], out[:, :, 1] = 0, 0
        out[:, 1:, 0] = frames[:, :-1, 0]
        out[:, :-1, 1] = frames[:, 1:, 1]
        return out.reshape(6, 4, 1, 1)

    agree(lambda x: functional.temporal_shift(x, 3), shifted, (6, 4, 1, 1))


def test_what_cannot_be_known_raises() -> None:
    x = default_main_program().data("x", [None, 2, 2], "int64")
    for call, message in (
        (lambda: functional.sequence_mask(x), "known only when data is fed"),
        (lambda: functional.gather_tree(x, x), "known only when data is fed"),
        (lambda: functional.alpha_dropout(x, 2.0), "no probability"),
        (lambda: functional.temporal_shift(x, 2, 0.7), "out of range"),
    ):
        with pytest.raises(ConfigError, match=message):
            call()
