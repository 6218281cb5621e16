"""Raggedness follows from the first size: which values have it, in copies, files and printed programs."""

# SPDX-License-Identifier: Apache-2.0
import json
from typing import Any

import pytest
import torch

from argosy import static
from argosy.engine.errors import ConfigError, ProgramError
from argosy.engine.ir.program import default_main_program
from argosy.engine.ir.ragged import all_lengths_of, companion_of, positions_of, rows_of_lengths
from argosy.engine.ir.serialize import from_dict, to_dict
from argosy.static import nn


def ragged(name: str = "x", level: int = 1) -> Any:
    return static.data(name, [None, 4], "float32", lod_level=level)


def names(variable: Any) -> list[str]:
    return [lengths.name for lengths in all_lengths_of(variable)]


def test_every_function_of_rows_keeps_the_lengths() -> None:
    x, y = ragged(), static.data("y", [None, 4])
    hidden = torch.cat([torch.relu(static.nn.fc(x, 3)), x * 2], 1)[:, 1:]
    assert (hidden.lod_level, names(hidden)) == (1, ["x@LENGTHS"])
    assert [v.lod_level for v in (y, static.nn.fc(y, 3), hidden.sum(), hidden.T, x[0])] == [0] * 5


def test_levels_nest() -> None:
    x = ragged(level=2)
    assert names(x) == ["x@LENGTHS@LENGTHS", "x@LENGTHS"]
    pooled = nn.sequence_pool(x, "sum")
    assert (pooled.lod_level, nn.sequence_pool(pooled, "sum").lod_level) == (1, 0)


def test_companions_are_no_feeds_of_the_user() -> None:
    program = default_main_program()
    lengths = program.vars[ragged().name + "@LENGTHS"]
    positions = positions_of(lengths)
    assert positions is not None
    assert positions is positions_of(lengths)
    assert list(program.feeds()) == ["x"]
    assert list(program.all_feeds()) == ["x", "x@LENGTHS", "x@POSITIONS"]
    assert (companion_of("x"), companion_of("x@POSITIONS"), companion_of("x@LENGTHS@LENGTHS")) == (
        None,
        "x",
        "x",
    )
    assert rows_of_lengths(lengths) == program.vars["x"].value.shape[0]
    assert "feed        x@LENGTHS    int64[N]" in str(program)
    assert "feed        x            float32[T, 4]" in str(program)


def test_a_dense_feed_with_as_many_rows_stays_dense() -> None:
    x, label = ragged(), static.data("label", [None, 4])
    difference = x - label
    assert (difference.lod_level, label.lod_level) == (1, 0)


def test_copies_and_files_keep_the_lengths() -> None:
    x = ragged()
    joined = nn.sequence_concat([x, x])
    inner = nn.sequence_expand(x, joined)
    out = nn.sequence_pool(torch.relu(inner), "sum")
    program = default_main_program()
    loaded = from_dict(json.loads(json.dumps(to_dict(program))))
    for copy in (program.clone(), program.clone(for_test=True), loaded):
        levels = [copy.vars[v.name].lod_level for v in (x, joined, inner, out)]
        assert levels == [1, 1, 1, 0]
        assert names(copy.vars[joined.name]) == names(joined)
    data = to_dict(program)
    next(v for v in data["variables"] if v["name"] == joined.name)["lengths"] = x.name
    with pytest.raises(ProgramError, match="the lengths 'x', which are not a vector of int64"):
        from_dict(data)


def test_the_first_size_of_a_ragged_feed_is_unknown_and_its_level_is_fixed() -> None:
    with pytest.raises(ConfigError, match=r"shape \[3, 4\] with lod_level=1; the first size .* must be None"):
        static.data("a", [3, 4], lod_level=1)
    with pytest.raises(ConfigError, match="lod_level 1 to 3"):
        static.data("a", [None, 4], lod_level=4)
    ragged()
    assert ragged() is default_main_program().vars["x"]
    with pytest.raises(ProgramError, match="exists already"):
        ragged(level=2)
