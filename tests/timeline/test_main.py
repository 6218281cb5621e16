"""python -m argosy.timeline: tables, JSON, exit codes; and a real job from fleetrun to the table."""

# SPDX-License-Identifier: Apache-2.0
import json
import subprocess
import sys
from pathlib import Path

import pytest

from argosy.timeline.__main__ import main
from tests.engine.launch.conftest import Fleetrun, fleetrun
from tests.ranks import ForkServer
from tests.timeline.test_step_summary import step
from tests.timeline.traces_by_hand import event, trace, write
from tests.warm_fleetrun import WarmFleetrun

__all__ = ["fleetrun"]


def test_the_table_has_a_row_for_each_rank_and_names_the_slowest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, trace(0, step(3)), trace(1, step(3, late=10)))
    assert main([str(tmp_path)]) == 0
    out = capsys.readouterr().out
    rows = [line.replace("|", " ").split() for line in out.splitlines()]
    assert ["0", "host-0", "100.00", "20.00", "30.00", "10.00", "5.00", "15.00", "20.00"] in rows
    assert ["0", "40.00", "20.00", "20.00", "50%", "2", "8.000"] in rows
    assert ["all_reduce", "g7", "dp", "4.000", "15.00", "0.00", "0.00"] in rows
    assert "straggler: rank 1, busy 90.00 ms a step; rank 0 waits 10.00 ms a step longer than it" in out
    assert "it was the last to start 2 of 2 collectives" in out
    assert "clock" not in out
    assert out.isascii()
    assert (tmp_path / "merged.json").exists()


def test_another_clock_and_a_step_without_collectives_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = [event("step 3", "step", 0, 100)]
    write(tmp_path, trace(0, alone), trace(1, alone, clock="there", wall_ns=3_000_000))
    assert main([str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "no collectives in these steps" in out
    assert "clock of rank 1: shifted by 3.000 ms, according to the wall clock" in out


def test_json_has_the_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(write(tmp_path, trace(0, step(3), size=1))), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ranks"][0]["exposed_fraction"] == 0.5
    assert report["straggler"] is None


def test_an_error_is_one_line_and_needs_no_torch(tmp_path: Path) -> None:
    code = "import sys; from argosy.timeline.__main__ import main; print(main(sys.argv[1:]), 'torch' in sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, tmp_path], capture_output=True, text=True, check=True
    )
    assert ended.stdout == "2 False\n"
    assert ended.stderr.startswith(f"error: {tmp_path} has no rank0.json")
    assert len(ended.stderr.splitlines()) == 1


def test_a_job_of_two_ranks_from_fleetrun_to_the_table(fleetrun: Fleetrun, ranks: ForkServer) -> None:
    script = fleetrun.script(
        "from argosy.distributed import fleet\n"
        "from tests.engine.runtime.test_timeline import net, train\n"
        "fleet.init(is_collective=True)\n"
        "os.chdir('/')\n"
        "train(4, *net())\n"
    )
    words = ("--nproc_per_node=2", "--timeline", "out", "--timeline-steps=2-3", script)
    job = WarmFleetrun(ranks, *words, cwd=fleetrun.directory)
    said = job.communicate()
    assert job.returncode == 0, said
    shown = subprocess.run(
        [sys.executable, "-m", "argosy.timeline", "out"],
        cwd=fleetrun.directory,
        env=fleetrun.environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "median of 2" in shown.stdout
    assert "straggler: rank " in shown.stdout
    names = sorted(path.name for path in (fleetrun.directory / "out").iterdir())
    assert names == ["merged.json", "rank0.json", "rank1.json"]
