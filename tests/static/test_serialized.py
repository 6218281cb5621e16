"""Parameters survive the way through bytes and files."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import numpy as np
import pytest

from argosy import static
from argosy.engine.errors import ConfigError, CorruptFileError


def test_a_model_goes_through_files_of_bytes(tmp_path: Path) -> None:
    x = static.data("x", [None, 3], "float32")
    y = static.nn.fc(x, 2, weight_attr="w", bias_attr="b")
    static.nn.fc(x, 4, weight_attr="unused")
    exe = static.Executor()
    exe.run(static.default_startup_program())
    feed = {"x": np.ones((1, 3), "float32")}
    (before,) = exe.run(feed=feed, fetch_list=[y])
    static.save_to_file(str(tmp_path / "model" / "program"), static.serialize_program([x], [y]))
    static.save_to_file(str(tmp_path / "values"), static.serialize_persistables([x], [y], exe))
    with static.scope_guard(static.Scope()):
        program = static.deserialize_program(static.load_from_file(str(tmp_path / "model" / "program")))
        static.deserialize_persistables(program, static.load_from_file(str(tmp_path / "values")), exe)
        (after,) = exe.run(program, feed=feed, fetch_list=[y.name])
    np.testing.assert_array_equal(before, after)
    with pytest.raises(ConfigError, match="cannot be read"):
        static.load_from_file(str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match="give bytes"):
        static.save_to_file(str(tmp_path / "text"), "text")  # type: ignore[arg-type]  # the error
    with pytest.raises(CorruptFileError, match="serialize_persistables"):
        static.deserialize_persistables(program, b"other")
