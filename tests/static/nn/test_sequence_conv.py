"""sequence_conv and sequence_enumerate agree with loops over the windows of each sequence."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch
from torch import Tensor

from argosy import static
from argosy.engine.errors import ConfigError
from argosy.engine.runtime.executor import Executor
from argosy.framework.initializer import Constant
from argosy.framework.layer import ParamAttr
from argosy.static import nn
from tests.ragged import check, ids_of


def windows(sequence: Tensor, size: int, first: int) -> Tensor:
    rows = []
    for t in range(len(sequence)):
        places = range(t + first, t + first + size)
        zero = torch.zeros_like(sequence[0])
        rows.append(torch.cat([sequence[p] if 0 <= p < len(sequence) else zero for p in places]))
    return torch.stack(rows) if rows else sequence.new_zeros(0, size * sequence.shape[1])


@pytest.mark.parametrize(
    ("size", "start", "first"), [(3, None, -1), (4, None, -2), (3, 0, 0), (2, -3, -3), (1, None, 0)]
)
def test_a_convolution_sees_only_the_rows_of_its_sequence(size: int, start: int | None, first: int) -> None:
    attr = ParamAttr(
        initializer=lambda shape, dtype: torch.sin(torch.arange(shape[0] * shape[1])).reshape(shape)
    )
    weight = torch.sin(torch.arange(size * 3 * 2.0)).reshape(size * 3, 2)
    out = check(
        lambda x: nn.sequence_conv(
            x, 2, size, padding_start=start, param_attr=attr, bias_attr=Constant(0.5), act="tanh"
        ),
        lambda s: [torch.tanh(windows(each, size, first) @ weight + 0.5) for each in s],
    )
    assert out.name == "sequence_conv_0.tmp_1"


def test_only_a_stride_of_one_is_supported_and_the_bias_is_optional() -> None:
    x = static.data("x", [None, 3], lod_level=1)
    with pytest.raises(ConfigError, match="filter_stride=2; give a positive size, and a stride of 1"):
        nn.sequence_conv(x, 2, filter_stride=2)
    nn.sequence_conv(x, 2, bias_attr=False)
    assert [p.shape for p in x.program.all_parameters()] == [(9, 2)]


def test_enumeration_gives_the_documented_result() -> None:
    x = static.data("x", [None, 1], "int64", lod_level=1)
    out = nn.sequence_enumerate(x, win_size=2, pad_value=0)
    (got,) = Executor().run(feed={"x": ids_of([1, 2, 3], [4, 5])}, fetch_list=[out], return_numpy=False)
    np.testing.assert_array_equal(got, [[1, 2], [2, 3], [3, 0], [4, 5], [5, 0]])
    assert got.lod() == [[0, 3, 5]]
    with pytest.raises(ConfigError, match="win_size=0"):
        nn.sequence_enumerate(x, 0)
