"""python -m argosy.plan: the table, JSON, exit codes, and that it needs no torch."""

# SPDX-License-Identifier: Apache-2.0
import json
import subprocess
import sys
from pathlib import Path

import pytest

from argosy.engine.planner.ps_setup import PsSetup
from argosy.plan.__main__ import main, parser
from argosy.timeline.__main__ import main as timeline_main
from tests.engine.planner.steps import cluster, ps_step, step


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """A step trace and a cluster of two hosts."""
    step(100_000_000, spread_ms=0.1).write(tmp_path / "trace.json")
    cluster(2, 1).write(tmp_path / "cluster.toml")
    return str(tmp_path / "trace.json"), str(tmp_path / "cluster.toml")


def test_the_table_has_the_step_and_the_sentence(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    trace, hosts = files
    assert main(["simulate", trace, "--hosts", hosts]) == 0
    out = capsys.readouterr().out
    assert "predicted step of 2 ranks on 2 hosts" in out
    assert "bound: the bandwidth of the link 'ethernet' takes 83% of the step: 100.0 MB a step" in out
    assert "all_reduce bucket0 (dp)" in out
    assert out.isascii()


def test_json_has_all_numbers(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    trace, hosts = files
    assert (
        main(["simulate", trace, "--hosts", hosts, "--ranks-per-host", "2", "--repeats", "3", "--json"]) == 0
    )
    prediction = json.loads(capsys.readouterr().out)
    assert prediction["format"] == "argosy.prediction"
    assert (prediction["ranks"], prediction["repeats"]) == (4, 3)
    assert prediction["low_ms"] <= prediction["step_ms"] <= prediction["high_ms"]


def test_a_predicted_timeline_is_summarized_like_a_recorded_one(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, hosts = files
    assert main(["simulate", trace, "--hosts", hosts, "--timeline", str(tmp_path / "predicted")]) == 0
    assert timeline_main([str(tmp_path / "predicted")]) == 0
    assert "predicted host 0" in capsys.readouterr().out


def test_servers_are_described_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ps_step("sync", 1_000_000, 1_000_000).write(tmp_path / "trace.json")
    cluster(2, 1).write(tmp_path / "cluster.toml")
    PsSetup("sync", 2).write(tmp_path / "servers.toml")
    paths = [str(tmp_path / name) for name in ("trace.json", "cluster.toml", "servers.toml")]
    assert main(["simulate", paths[0], "--hosts", paths[1], "--servers", paths[2]]) == 0
    assert "server host" in capsys.readouterr().out


def test_invalid_arguments_and_files_exit_with_2(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    trace, hosts = files
    assert main(["simulate", trace, "--hosts", trace]) == 2
    assert main(["simulate", hosts, "--hosts", hosts]) == 2
    assert main(["simulate", trace, "--hosts", hosts, "--ranks-per-host", "0"]) == 2
    assert main(["simulate", trace, "--hosts", hosts, "--repeats", "0"]) == 2
    assert capsys.readouterr().err.count("error: ") == 4


def test_the_flags_are_these() -> None:
    help_text = parser()._subparsers._group_actions[0].choices["simulate"].format_help()  # type: ignore[union-attr, index, call-overload]
    flags = ["--hosts", "--ranks-per-host", "--servers", "--repeats", "--seed", "--timeline", "--json"]
    assert [word for word in flags if word not in help_text] == []


def test_it_needs_no_torch() -> None:
    code = "import sys, argosy.plan.__main__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
