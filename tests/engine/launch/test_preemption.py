"""fleetrun --grace: SIGTERM is forwarded, the requeue code is no failure, and nothing outlives the grace period."""

# SPDX-License-Identifier: Apache-2.0
import os
import signal
import subprocess

import pytest

from argosy.engine.launch import preemption
from argosy.engine.launch.cli import parse
from argosy.engine.launch.failure_report import ProcessExit
from argosy.engine.launch.preemption import GracePeriod
from argosy.engine.launch.rank_env import ProcessSpec, option_variables
from tests.engine.launch.conftest import Fleetrun

HERE = "open(f'here.{rank}', 'w').write(f'{os.getpid()}\\n')\n"
SAVES = (
    "def stop(*_):\n    print('saves', flush=True)\n    sys.exit(int(os.environ['ARGOSY_REQUEUE_CODE']))\n"
    "signal.signal(signal.SIGTERM, stop)\n"
)
CHILD = (
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    "def stop(*_):\n    assert child.poll() is None, 'it was signalled, too'\n    sys.exit(9)\n"
    "signal.signal(signal.SIGTERM, stop)\n"
)


def start(fleetrun: Fleetrun, text: str, *words: str) -> "subprocess.Popen[str]":
    """A job of two ranks that sleep, as soon as both have begun to."""
    job = fleetrun.start("--nproc_per_node=2", *words, fleetrun.script(f"{text}{HERE}time.sleep(60)\n"))
    for rank in (0, 1):
        fleetrun.wait_for(f"here.{rank}")
    return job


def test_ranks_that_exit_with_the_requeue_code_are_no_failure(fleetrun: Fleetrun) -> None:
    job = start(fleetrun, SAVES, "--grace=30", "--max_restarts=3")
    job.send_signal(signal.SIGTERM)
    _, err = job.communicate(timeout=30)
    assert job.returncode == 75
    assert "SIGTERM: waiting at most 30 s until the job has saved a checkpoint" in err
    assert "exit code 75: start the job again to resume" in err
    assert "RankFailed" not in err
    assert "restart" not in err
    assert [fleetrun.log(rank) for rank in (0, 1)] == ["saves\n", "saves\n"]


def test_children_of_ranks_are_not_signalled(fleetrun: Fleetrun) -> None:
    job = start(fleetrun, CHILD, "--grace=30", "--requeue_code=9")
    job.send_signal(signal.SIGTERM)
    _, err = job.communicate(timeout=30)
    assert job.returncode == 9, err
    assert fleetrun.all_gone(within_s=1)


def test_a_signal_to_the_ranks_alone_preempts_the_job(fleetrun: Fleetrun) -> None:
    job = start(fleetrun, SAVES, "--grace=30")
    for rank in (0, 1):
        os.kill(int(fleetrun.wait_for(f"here.{rank}")), signal.SIGTERM)
    _, err = job.communicate(timeout=30)
    assert job.returncode == 75, err


def test_a_script_that_saves_nothing_is_terminated_at_once(fleetrun: Fleetrun) -> None:
    job = start(fleetrun, "", "--grace=50", "--max_restarts=3")
    job.send_signal(signal.SIGTERM)
    _, err = job.communicate(timeout=30)
    assert job.returncode == 143
    assert "was terminated by SIGTERM: its script was not in the loop of a fleet.Checkpoint" in err
    assert "no checkpoint was completed after SIGTERM" in err
    assert "RankFailed" not in err
    assert fleetrun.all_gone(within_s=1)


def test_ranks_that_do_not_exit_in_the_grace_period_are_killed(fleetrun: Fleetrun) -> None:
    ignores = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    job = start(fleetrun, ignores, "--grace=0.5", "--max_restarts=3")
    job.send_signal(signal.SIGTERM)
    _, err = job.communicate(timeout=30)
    assert job.returncode == 143
    assert "no checkpoint was completed after 0.5 s" in err
    assert "SIGTERM: all ranks were terminated" in err
    assert fleetrun.all_gone(within_s=1)


def test_a_failure_in_the_grace_period_is_reported_and_not_restarted(fleetrun: Fleetrun) -> None:
    fails = "def stop(*_):\n    raise OSError('disk full')\nsignal.signal(signal.SIGTERM, stop)\n"
    job = start(fleetrun, fails, "--grace=30", "--max_restarts=3")
    job.send_signal(signal.SIGTERM)
    _, err = job.communicate(timeout=30)
    assert job.returncode == 143
    assert "disk full" in err
    assert "restart 1" not in err
    assert "no checkpoint was completed" in err


SERVES = """
def end(*_):
    print('after the worker' if os.path.exists('saved') else 'before the worker')
    sys.exit(0)
def save(*_):
    open('saved', 'w')
    sys.exit(75)
if os.environ['TRAINING_ROLE'] == 'PSERVER':
    rank = 'server'
    signal.signal(signal.SIGTERM, end)
else:
    rank = 'worker'
    signal.signal(signal.SIGTERM, save)
"""


def test_workers_are_signalled_and_servers_are_terminated_last(fleetrun: Fleetrun) -> None:
    script = fleetrun.script(f"{SERVES}{HERE}time.sleep(60)\n")
    job = fleetrun.start("--server_num=1", "--worker_num=1", "--grace=30", "--max_restarts=3", script)
    for name in ("server", "worker"):
        fleetrun.wait_for(f"here.{name}")
    job.send_signal(signal.SIGTERM)
    _, err = job.communicate(timeout=30)
    assert job.returncode == 75, err
    assert "restart" not in err
    assert fleetrun.log(0, kind="server") == "after the worker\n"


def exited(code: int) -> ProcessExit:
    return ProcessExit(ProcessSpec(0, 0, {}, ()), 1, code, "log")


def test_sigterm_within_three_seconds_is_the_same_request_and_later_ends_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, pids = 100.0, [2**22 + 1]  # no process has this number: it is above the kernel's maximum
    monkeypatch.setattr(preemption.time, "monotonic", lambda: now)
    grace = GracePeriod(parse(["--grace=10", "t.py"]))
    assert not grace.begin(signal.SIGINT, pids)
    assert grace.begin(signal.SIGTERM, pids)
    now = 102.9
    assert grace.begin(signal.SIGTERM, pids)
    assert grace.until == 110.0
    now = 103.5
    assert not grace.begin(signal.SIGTERM, pids)
    assert not GracePeriod(parse(["t.py"])).begin(signal.SIGTERM, pids)


def test_the_exit_code_says_whether_a_checkpoint_is_complete() -> None:
    grace = GracePeriod(parse(["--grace=10", "t.py"]))
    assert grace.exit_code(signal.SIGTERM, has_failures=False) is None
    assert grace.is_requeue(exited(75))
    assert not grace.has_failed(has_failures=False, is_running=True), "the rest is killed"
    assert grace.has_failed(has_failures=True, is_running=False)
    assert grace.exit_code(None, has_failures=False) == 75
    assert grace.exit_code(signal.SIGTERM, has_failures=False) == 75
    assert grace.exit_code(signal.SIGINT, has_failures=False) is None
    assert grace.exit_code(signal.SIGTERM, has_failures=True) is None


def test_only_the_requeue_code_of_a_job_with_a_grace_period_is_a_requeue() -> None:
    grace = GracePeriod(parse(["--grace=10", "--requeue_code=85", "t.py"]))
    assert not grace.is_requeue(exited(75))
    assert not grace.has_begun
    assert grace.is_requeue(exited(85))
    assert grace.has_begun
    assert not GracePeriod(parse(["t.py"])).is_requeue(exited(75))
    assert option_variables(grace.config)["ARGOSY_REQUEUE_CODE"] == "85"
    assert option_variables(parse(["--grace=10", "t.py"]))["ARGOSY_REQUEUE_CODE"] == "75"
    assert "ARGOSY_REQUEUE_CODE" not in option_variables(parse(["t.py"]))
