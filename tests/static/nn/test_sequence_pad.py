"""sequence_pad, sequence_unpad and sequence_mask: loops agree, unknown lengths, sequences that are too long."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from argosy import static
from argosy.engine.data.lod_tensor import LoDTensor
from argosy.engine.errors import ConfigError, FeedError, ProgramError
from argosy.engine.runtime.executor import Executor
from argosy.static import nn
from argosy.static.nn.sequence_pad import sequence_mask
from tests.ragged import BATCHES, Sequences, check, ids_of


def padded(sequences: Sequences, length: int, row: Tensor) -> Tensor:
    return torch.stack([torch.cat([s, row.expand(length - len(s), 3)]) for s in sequences])


def run(feed: dict[str, Any], *fetches: Any) -> list[Any]:
    return Executor().run(feed=feed, fetch_list=list(fetches), return_numpy=False)


@pytest.mark.parametrize("maxlen", [None, 6])
def test_padding_appends_the_value_to_each_sequence(maxlen: int | None) -> None:
    row = torch.tensor([1.0, 2.0, 3.0])
    out = check(
        lambda x: nn.sequence_pad(x, row.numpy(), maxlen)[0],
        lambda s: padded(s, maxlen or max(map(len, s)), row),
    )
    assert out.shape == (-1, maxlen or -1, 3)


def test_unpadding_is_the_inverse_also_of_results_with_other_lengths() -> None:
    def there_and_back(x: Any) -> Any:
        rows, lengths = nn.sequence_pad(x, 0.0)
        return nn.sequence_unpad(rows * 2, lengths)

    out = check(there_and_back, lambda s: [2 * each for each in s])
    assert out.value.shape[0] == out.program.var("x0").value.shape[0]


def test_lengths_that_are_computed_are_padded_to_the_longest() -> None:
    def layer(x: Any, y: Any) -> Any:
        rows, lengths = nn.sequence_pad(nn.sequence_concat([x, y]), 0.0, maxlen=9)
        return nn.sequence_unpad(rows, lengths)

    def loop(s: Sequences, t: Sequences) -> Sequences:
        return [torch.cat(pair) for pair in zip(s, t, strict=True)]

    check(layer, loop, [[b, b] for b in BATCHES[:2]], shapes=[(3,), (3,)])
    longest, _ = nn.sequence_pad(nn.sequence_concat([static.default_main_program().var("x0")] * 2), 1.0)
    feed = {"x0": LoDTensor.of_lengths(np.zeros((5, 3), "float32"), [[5, 0]])}
    (got,) = run(feed, longest)
    assert (got.shape, float(got[1].min())) == ((2, 10, 3), 1.0)


def test_a_sequence_longer_than_maxlen_is_rejected() -> None:
    x = static.data("x", [None, 1], "int64", lod_level=1)
    out, _ = nn.sequence_pad(x, 0, maxlen=2)
    computed, _ = nn.sequence_pad(nn.sequence_concat([x, x]), 0, maxlen=5)
    with pytest.raises(FeedError, match=r"x@POSITIONS\[0\] <= 2"):
        run({"x": ids_of([1, 2, 3], [4])}, out)
    got, more = run({"x": ids_of([1, 2], [4])}, out, computed)
    assert (got[..., 0].tolist(), more[..., 0].tolist()) == (
        [[1, 2], [4, 0]],
        [[1, 2, 1, 2, 0], [4, 4, 0, 0, 0]],
    )
    with pytest.raises(ConfigError, match="maxlen=0"):
        nn.sequence_pad(x, 0, maxlen=0)


def test_a_computed_sequence_longer_than_maxlen_is_an_error_of_the_run() -> None:
    x = static.data("x", [None, 1], "int64", lod_level=1)
    out, _ = nn.sequence_pad(nn.sequence_concat([x, x]), 0, maxlen=5)
    with pytest.raises(ProgramError, match="arange"):
        run({"x": ids_of([1, 2, 3], [4])}, out)


def test_unpadding_takes_the_lengths_of_any_variable() -> None:
    x, length = static.data("x", [None, 3, 2]), static.data("length", [None, 1], "int64")
    out = nn.sequence_unpad(x, length)
    total = nn.sequence_pool(out, "sum")
    rows = np.arange(12, dtype="float32").reshape(2, 3, 2)
    got, sums = run({"x": rows, "length": np.array([[1], [3]])}, out, total)
    np.testing.assert_array_equal(got, np.concatenate([rows[0, :1], rows[1]]))
    np.testing.assert_array_equal(sums, [rows[0, 0], rows[1].sum(0)])
    with pytest.raises(ProgramError, match="index"):
        run({"x": rows, "length": np.array([[1], [4]])}, out)


def test_masks_have_ones_below_the_lengths() -> None:
    x, limit = static.data("x", [None], "int64"), static.data("limit", [1], "int64")
    ragged = static.data("ragged", [None, 1], lod_level=1)
    _, lengths = nn.sequence_pad(ragged, 0.0)
    masks = [
        sequence_mask(x, 4, "float32"),
        sequence_mask(x),
        sequence_mask(x, limit),
        sequence_mask(lengths, dtype="bool"),
    ]
    rows = LoDTensor.of_lengths(np.zeros((3, 1), "float32"), [[1, 2]])
    feed = {"x": np.array([3, 0]), "limit": np.array([2]), "ragged": rows}
    known, longest, limited, of_rows = run(feed, *masks)
    assert (known.tolist(), known.dtype) == ([[1, 1, 1, 0], [0, 0, 0, 0]], torch.float32)
    assert longest.tolist() == [[1, 1, 1], [0, 0, 0]]
    assert limited.tolist() == [[1, 1], [0, 0]]
    assert of_rows.tolist() == [[True, False], [True, True]]
