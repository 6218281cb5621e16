"""Stragglers of real jobs: a rank beside other load, a slow reader, a throttled link, and even jobs.

Other processes of the machine may disturb a job: an event about their load is right, and not one of an even job. So
these tests run with `make test-engines`, one after the other.
"""

# SPDX-License-Identifier: Apache-2.0
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import pytest

from argosy.engine.metrics.job_directory import JobDirectory
from argosy.engine.metrics.stragglers import StragglerDetector
from tests.jobs.test_lab import a_lab
from tests.ranks import clean_environ

pytestmark = pytest.mark.engines

WORKER = str(Path(__file__).parents[2] / "benchmarks" / "straggler_worker.py")
FLEETRUN = [sys.executable, "-m", "argosy.distributed.launch"]
ENVIRON = clean_environ() | {"OMP_NUM_THREADS": "1"}
AT = 60


def events_of(directory: Path) -> list[dict[str, Any]]:
    return StragglerDetector().update(JobDirectory.find(directory).poll())


def job(directory: Path, *words: str) -> list[dict[str, Any]]:
    """The events of a job of two ranks; its steps are long enough to be recorded one by one."""
    command = [*FLEETRUN, "--nproc_per_node=2", WORKER, "--hidden=2048", f"--at={AT}", *words]
    done = subprocess.run(
        command, cwd=directory, env=ENVIRON, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return events_of(directory / "log")


def named(events: list[dict[str, Any]], cause: str) -> dict[str, Any]:
    """The event about rank 1 with this cause."""
    matching = [e for e in events if (e["kind"], e["rank"], e["cause"]) == ("straggler", 1, cause)]
    assert matching, events
    return matching[0]


def unexplained(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without those about processes that this test has not started."""
    return [e for e in events if e["kind"] == "straggler" and e["because"] != "load"]


def test_a_rank_beside_a_busy_process_is_named_with_the_load_of_its_host(tmp_path: Path) -> None:
    event = named(job(tmp_path, "--slow=load", "--steps=110"), "computation")
    assert event["because"] == "load", event
    assert AT < event["step"] <= AT + 40, event


def test_a_slow_reader_is_named(tmp_path: Path) -> None:
    event = named(job(tmp_path, "--slow=reader", "--excess=1.0", "--steps=110"), "input")
    assert AT < event["step"] <= AT + 40, event


def test_a_script_that_works_between_the_steps_is_named(tmp_path: Path) -> None:
    assert named(job(tmp_path, "--slow=script", "--excess=1.0", "--steps=110"), "script")


def test_an_even_job_has_no_straggler_but_by_load_of_other_processes(tmp_path: Path) -> None:
    assert unexplained(job(tmp_path, "--slow=none", "--steps=300")) == []


def test_a_throttled_link_is_named(tmp_path: Path) -> None:
    with a_lab("400mbit", hosts=3) as lab:
        lab.limit(2, "100mbit")
        started = []
        for host in range(3):
            directory = tmp_path / str(host)
            directory.mkdir()
            words = ["--nproc_per_node=1", f"--ips={','.join(lab.addresses)}", WORKER]
            started.append(
                lab.start(
                    host,
                    [*FLEETRUN, *words, "--steps=30", "--hidden=512", "--layers=2"],
                    cwd=directory,
                    env=ENVIRON,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.STDOUT,
                )
            )
        assert [process.wait(200) for process in started] == [0, 0, 0]
        address = lab.addresses[2]
    metrics = tmp_path / "all" / "metrics"
    metrics.mkdir(parents=True)
    for host in range(3):
        shutil.copy(tmp_path / str(host) / "log" / "metrics" / f"rank{host}.jsonl", metrics)
    links = [event for event in events_of(metrics.parent) if event["cause"] == "link"]
    assert [(event["rank"], event["address"]) for event in links] == [(2, address)]
