"""Reading `scontrol show job`; the lines are those of Slurm 22.05, without some fields."""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from argosy.engine.cluster.slurm_status import JobStatus, parse_status, status
from argosy.engine.errors import ConfigError

RUNNING = (
    "JobId=8 JobName=my job StdOut=/x UserId=root(0) JobState=RUNNING Reason=None Dependency=(null) Requeue=1 "
    "Restarts=2 ExitCode=0:0 AllocNode:Sid=login:32007 ReqNodeList=(null) NodeList=n[0-1] BatchHost=n0 NumNodes=2 "
    "CPUs/Task=1 TRES=cpu=2,node=2,billing=2 WorkDir=/home/a b StdIn=/dev/null StdOut=/home/a b/slurm-8.out Power= "
)
PENDING = (
    "JobId=9 ArrayJobId=7 ArrayTaskId=1-3%1 JobName=wrap JobState=PENDING Reason=JobArrayTaskLimit Restarts=0 "
    "ExitCode=0:0 ReqNodeList=(null) NodeList= StdOut=/home/slurm-9.out Power= "
)


def test_the_fields_of_a_running_job() -> None:
    expected = JobStatus("RUNNING", "", "n[0-1]", 2, 0, 0, "/home/a b/slurm-8.out", "")
    assert parse_status(RUNNING) == expected
    assert not expected.has_ended


def test_a_pending_job_of_an_array_has_a_reason_and_no_nodes() -> None:
    status = parse_status(PENDING)
    assert (status.state, status.reason, status.nodelist, status.array) == (
        "PENDING",
        "JobArrayTaskLimit",
        "",
        "7",
    )


@pytest.mark.parametrize(
    ("state", "exit_code", "exit_signal", "code"),
    [
        ("COMPLETED", 0, 0, 0),
        ("FAILED", 1, 0, 1),
        ("FAILED", 143, 0, 143),
        ("CANCELLED", 0, 15, 143),
        ("TIMEOUT", 0, 0, 1),
        ("NODE_FAIL", 0, 0, 1),
    ],
)
def test_only_a_completed_job_has_the_code_0(state: str, exit_code: int, exit_signal: int, code: int) -> None:
    ended = replace(parse_status(RUNNING), state=state, exit_code=exit_code, exit_signal=exit_signal)
    assert ended.has_ended
    assert ended.code == code


def test_an_id_that_is_no_number_is_rejected() -> None:
    with pytest.raises(ConfigError, match="'train.py' is no job of Slurm; use a number"):
        status("train.py")
