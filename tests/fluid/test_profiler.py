"""The profiler counts the calls of each op, prints a sorted table and writes a trace."""

# SPDX-License-Identifier: Apache-2.0
import json
from pathlib import Path

import numpy as np
import pytest

from argosy import fluid
from argosy.engine.errors import ConfigError
from argosy.fluid import profiler


def test_each_op_of_each_run_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = fluid.layers.data("x", [4])
    loss = fluid.layers.mean(fluid.layers.exp(fluid.layers.fc(x, 3, bias_attr=False)))
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    path = tmp_path / "profile"
    batch = {"x": np.ones((2, 4), "float32")}
    with profiler.profiler("CPU", "calls", str(path)):
        exe.run(feed=batch, fetch_list=[loss])
        profiler.reset_profiler()
        for _ in range(3):
            exe.run(feed=batch, fetch_list=[loss])
    out = capsys.readouterr().out
    assert "Profiling Report" in out
    assert "Sorted by calls in descending order, 3 runs" in out
    rows = {line.split()[0]: line.split()[1:] for line in out.partition("Ratio.")[2].splitlines() if line}
    (exp,) = (row for op, row in rows.items() if "exp" in op)
    calls, total, least, most, mean, ratio = map(float, exp)
    assert calls == 3
    assert least <= mean <= most <= total
    assert mean == pytest.approx(total / 3, rel=1e-3)
    assert 0 < ratio < 1
    assert [int(row[0]) for row in rows.values()] == sorted((int(r[0]) for r in rows.values()), reverse=True)
    events = json.loads(path.read_text())["traceEvents"]
    assert sum(event.get("cat") == "step" for event in events) == 3


def test_wrong_calls_raise(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="call start_profiler first"):
        profiler.stop_profiler()
    with pytest.raises(ConfigError, match="use 'CPU' or 'All'"):
        profiler.start_profiler("GPU")
    profiler.start_profiler("All", "OpDetail")
    with pytest.raises(ConfigError, match="runs already"):
        profiler.start_profiler("CPU")
    with pytest.raises(ConfigError, match="use calls, total"):
        profiler.stop_profiler("fastest")
    profiler.stop_profiler("total", str(tmp_path / "profile"))
    with pytest.raises(ConfigError, match="profiler\\('CPU'\\)"):
        profiler.cuda_profiler("file")
