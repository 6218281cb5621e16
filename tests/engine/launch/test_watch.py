"""A real job with sinks, dashboard and report; what fails in them does not end the job."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import signal
import socket
import time
import urllib.request
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from tests.engine.launch.recording import RECORD
from tests.engine.metrics.test_tensorboard import read

if TYPE_CHECKING:  # a conftest is not there to be imported
    from tests.engine.launch.conftest import Fleetrun

TRAIN = (
    RECORD
    + """
record("start", rank=number, role="rank", size=2)
train(10)
record("values", step=10, values={"loss": 0.25 if number else 0.75}, reduce={})
wait_for("go")
"""
)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def test_prometheus_and_tensorboard_of_a_running_job(fleetrun: Fleetrun) -> None:
    pytest.importorskip("prometheus_client")
    port = free_port()
    words = ["--nproc_per_node=2", f"--metrics_port={port}", "--tensorboard=tb", fleetrun.script(TRAIN)]
    job = fleetrun.start(*words)
    text, until = "", time.monotonic() + 60
    while 'argosy_value{name="loss"} 0.5' not in text:
        assert time.monotonic() < until, text
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as reply:
                text = reply.read().decode()
        except OSError:
            time.sleep(0.05)
    assert 'argosy_steps_total{rank="1"} 10.0' in text
    (fleetrun.directory / "go").touch()
    _, err = job.communicate(timeout=60)
    assert job.returncode == 0, err
    assert f"metrics for Prometheus: http://127.0.0.1:{port}/metrics" in err
    assert read(fleetrun.directory / "tb")["loss"] == [(10, 0.5)]


def test_what_cannot_be_served_is_rejected_before_anything_starts(fleetrun: Fleetrun) -> None:
    script = fleetrun.script("open('started', 'w')")
    open_to_all = fleetrun.run("--metrics_port=9", "--metrics_host=0.0.0.0", script)
    assert open_to_all.returncode == 2
    assert "ARGOSY_JOB_TOKEN is not set, which clients need" in open_to_all.stderr
    (fleetrun.directory / "file").touch()
    assert "--tensorboard=file: cannot write there" in fleetrun.run("--tensorboard=file", script).stderr
    assert not (fleetrun.directory / "started").exists()


def test_a_straggler_is_logged(fleetrun: Fleetrun) -> None:
    slow = RECORD + (
        "record('start', rank=number, role='rank', size=2, host='h')\n"
        "for i in range(1, 301): train(i, 99.0 if number and i > 100 else 50.0, steps=1)\n"
        "time.sleep(1.5)\n"
    )
    done = fleetrun.run("--nproc_per_node=2", fleetrun.script(slow))
    assert done.returncode == 0
    assert "rank 1 is " in done.stderr
    events = (fleetrun.directory / "log/metrics/events.jsonl").read_text().splitlines()
    straggler = next(e for e in map(json.loads, events) if e["kind"] == "straggler")
    assert straggler["rank"] == 1


has_dashboard = pytest.mark.skipif(
    find_spec("argosy.dashboard") is None or find_spec("uvicorn") is None, reason="needs argosy[dashboard]"
)


def url_of_dashboard(fleetrun: Fleetrun) -> str:
    until = time.monotonic() + 60
    while True:
        assert time.monotonic() < until, (fleetrun.directory / "log/dashboard.log").read_text()
        try:
            if url := json.loads((fleetrun.directory / "log/job.json").read_text())["dashboard"]:
                return str(url)
        except (OSError, ValueError):
            pass
        time.sleep(0.05)


@has_dashboard
@pytest.mark.slow
def test_the_dashboard_is_served_while_the_job_runs(fleetrun: Fleetrun) -> None:
    job = fleetrun.start("--nproc_per_node=2", "--dashboard", str(free_port()), fleetrun.script(TRAIN))
    url = url_of_dashboard(fleetrun)
    with urllib.request.urlopen(url, timeout=30) as reply:
        assert b"<html" in reply.read()
    (fleetrun.directory / "go").touch()
    out, err = job.communicate(timeout=60)
    assert job.returncode == 0, err
    assert f"dashboard: {url}\n" in out
    with pytest.raises(OSError):
        urllib.request.urlopen(url, timeout=5)


@has_dashboard
@pytest.mark.slow
def test_the_dashboard_ends_with_a_killed_launcher(fleetrun: Fleetrun) -> None:
    job = fleetrun.start("--dashboard", str(free_port()), fleetrun.script(TRAIN))
    url_of_dashboard(fleetrun)
    launcher = json.loads((fleetrun.directory / "log/job.json").read_text())["launcher_pid"]
    job.kill()
    os.kill(launcher, signal.SIGKILL)
    job.communicate(timeout=60)
    assert fleetrun.all_gone(within_s=30)


@has_dashboard
@pytest.mark.slow
def test_a_dashboard_that_fails_does_not_end_the_job(fleetrun: Fleetrun) -> None:
    job = fleetrun.start("--dashboard", str(free_port()), fleetrun.script(TRAIN))
    url_of_dashboard(fleetrun)
    dashboard = next(p for p in fleetrun.alive() if "argosy.dashboard" in p.cmdline())
    dashboard.kill()
    until = time.monotonic() + 60
    while "the dashboard has ended" not in (fleetrun.directory / "log/fleetrun.log").read_text():
        assert time.monotonic() < until
        time.sleep(0.05)
    (fleetrun.directory / "go").touch()
    job.communicate(timeout=60)
    assert job.returncode == 0


@pytest.mark.skipif(find_spec("argosy.report") is None, reason="there is no argosy.report")
@pytest.mark.slow
def test_a_report_is_written_at_the_end(fleetrun: Fleetrun) -> None:
    (fleetrun.directory / "go").touch()
    script = fleetrun.script(TRAIN + "if number: raise ValueError('planted')")
    assert fleetrun.run("--nproc_per_node=2", script).returncode == 1
    assert "ValueError: planted" in (fleetrun.directory / "log/report.html").read_text()
    assert fleetrun.run("--quiet", fleetrun.script("pass")).returncode == 0
    assert not (fleetrun.directory / "log/report.html").exists()  # a short job without steps
    assert (fleetrun.directory / "log/report.html.1").exists()
