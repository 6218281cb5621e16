"""`python -m argosy.plan servers`: settings of a measured script, what bounds them, and errors."""

# SPDX-License-Identifier: Apache-2.0
import json
from pathlib import Path

import pytest

from argosy.plan.__main__ import main
from argosy.plan.ps_jobs import measure
from tests.engine.planner.test_ps_measured import MB, measured

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "planner_ps_script.py"


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.toml"
    path.write_text(
        'version = 1\n[[hosts]]\ncount = 8\ncores = 4\nlink = "ethernet"\n[links.ethernet]\ngbit_per_s = 1.0\n'
    )
    return path


def run(hosts: Path, folder: Path, *words: str) -> int:
    return main(["servers", "--hosts", str(hosts), "--measured", str(folder), *words])


def test_the_fastest_is_first_and_says_what_bounds_it(
    hosts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "measured"
    folder.mkdir()
    measured("async", nbytes=20 * MB).write(folder / "async.json")
    measured("sync", nbytes=20 * MB).write(folder / "sync.json")
    assert run(hosts, folder, "--servers", "1", "8", "--workers", "8", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert [(one["mode"], one["servers"]) for one in printed] == [
        ("async", 8), ("sync", 8), ("async", 1), ("sync", 1),
    ]  # fmt: skip
    assert printed[2]["bound"].startswith("the NIC of a server, in use for")
    assert printed[0]["lines"] == ["fleetrun --server_num=8 --worker_num=8 SCRIPT", "strategy.a_sync = True"]
    assert run(hosts, folder, "--workers", "8", "--top", "2") == 0
    shown = capsys.readouterr().out
    assert "change the convergence" in shown
    assert "To use the first:" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--servers", "0"], "--servers 0; use 1 or more"),
        (["--workers", "9"], "9 workers on a cluster of 8 ranks"),
        (["train.py"], "give either a script to measure, or --measured"),
    ],
)
def test_errors(
    hosts: Path, tmp_path: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    measured().write(tmp_path / "async.json")
    assert run(hosts, tmp_path, *words) == 2
    assert message in capsys.readouterr().err


def test_a_folder_without_measurements(
    hosts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(hosts, tmp_path) == 2
    assert "has no *.json; write it with --write" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sync", "geo"])
def test_a_real_script_is_measured(mode: str) -> None:
    """Three jobs of real processes: what a step sends, and that every thread takes core time."""
    found = measure(SCRIPT, ["mlp"], mode, 4 if mode == "geo" else 1, seconds=2.0)  # type: ignore[arg-type]
    assert found.examples == 256
    kinds = [o.kind for step in found.one.steps for o in step.operations if o.verb == "start"]
    assert {"push", "pull"} <= set(kinds)
    assert ("barrier" in kinds) == (mode == "sync")
    parameters = 4 * (784 * 512 + 512 + 2 * (512 * 512 + 512) + 512 * 10 + 10)
    synchronizing = found.one.steps[0]
    assert synchronizing.num_bytes == 2 * parameters
    assert len(found.one.steps) == (2 if mode == "geo" else 1)
    for job in (found.one, found.servers, found.workers):
        assert min(job.main_ms, job.transport_ms, job.server_ms, job.handlers_ms, job.step_ms) > 0
