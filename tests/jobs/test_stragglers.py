"""Stragglers of real jobs: a rank beside other load, a slow reader, a throttled link, and even jobs.

How soon a straggler is named depends on other load of the machine: these tests run with `make test-engines-slow`, one
after the other, and allow for more steps than a quiet machine needs (benchmarks/stragglers.py). Even jobs: no alarm.
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import pytest

from argosy.engine.metrics.job_directory import JobDirectory
from argosy.engine.metrics.stragglers import StragglerDetector
from tests.jobs.test_lab import a_lab
from tests.ranks import clean_environ

pytestmark = [pytest.mark.engines, pytest.mark.slow]

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


@contextlib.contextmanager
def moving_load() -> Iterator[None]:
    """A busy process that moves over the cores at random."""
    process = subprocess.Popen([sys.executable, str(Path(WORKER).parent / "moving_load.py"), "--mean_s=1"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def test_a_rank_beside_a_busy_process_is_named_with_the_load_of_its_host(tmp_path: Path) -> None:
    event = named(job(tmp_path, "--slow=load", "--steps=110"), "computation")
    assert event["because"] == "load", event
    assert AT < event["step"] <= AT + 40, event


def test_a_slow_reader_is_named(tmp_path: Path) -> None:
    event = named(job(tmp_path, "--slow=reader", "--excess=1.0", "--steps=110"), "input")
    assert AT < event["step"] <= AT + 40, event


def test_a_script_that_works_between_the_steps_is_named(tmp_path: Path) -> None:
    assert named(job(tmp_path, "--slow=script", "--excess=1.0", "--steps=110"), "script")


def test_an_even_job_has_no_straggler(tmp_path: Path) -> None:
    assert job(tmp_path, "--slow=none", "--steps=300", "--hidden=1024") == []


def test_an_even_job_beside_load_that_moves_has_no_straggler(tmp_path: Path) -> None:
    with moving_load():
        assert job(tmp_path, "--slow=none", "--steps=400", "--hidden=1024") == []


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
