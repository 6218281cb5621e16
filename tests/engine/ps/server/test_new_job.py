"""A job that begins with the state of an earlier one: servers agree on a step, nothing of the old job is left."""

# SPDX-License-Identifier: Apache-2.0
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from argosy.engine.errors import ProgramError, RejectedError
from argosy.engine.ps.protocol.job_plan import Dense, JobPlan
from argosy.engine.ps.protocol.slicing import VariableBlock
from argosy.engine.ps.rpc.sockets import RpcSettings
from argosy.engine.ps.server.service import Service
from argosy.engine.ps.trainer.trainer import Trainer
from tests.engine.ps.served import PlainSgd, served
from tests.ranks import free_endpoints

SETTINGS = RpcSettings(deadline_s=20.0, heartbeat_s=0.2, heartbeat_timeout_s=1.0)


def two_servers(endpoints: tuple[str, ...]) -> JobPlan:
    """A variable in two blocks, one on each server."""
    blocks = tuple(VariableBlock("w", i, i, (1,), False, i) for i in range(2))
    return JobPlan(endpoints, 1, "sync", (Dense("w", "w@GRAD", (2,), "rate", blocks),))


@contextmanager
def both_served(directory: Path, job: str) -> Iterator[tuple[JobPlan, list[str]]]:
    """Two servers of a job; what ended them is in the list when they have ended."""
    plan = two_servers(free_endpoints(2))
    failures: list[str] = []

    def serve(service: Service) -> None:
        try:
            service.serve()
        except ProgramError as e:
            failures.append(str(e))

    services = [
        Service(
            plan,
            number,
            PlainSgd(**{f"w.block{number}": torch.zeros(1)}),
            SETTINGS,
            directory / f"server_{number}",
            stays=True,
            job=job,
        )
        for number in range(2)
    ]
    threads = [threading.Thread(target=serve, args=(one,)) for one in services]
    for thread in threads:
        thread.start()
    try:
        yield plan, failures
    finally:
        for service in services:
            service.stop()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive(), "a server does not end"


def steps(plan: JobPlan, count: int) -> list[float]:
    """So many steps that each add 1, and the values after them."""
    trainer = Trainer(plan, 0, SETTINGS)
    w = torch.empty(2)
    for _ in range(count):
        trainer.blocks.send(-torch.ones(2), 1.0, ["w.block0", "w.block1"], [1, 1], [0, 1])
        trainer.blocks.end_step()
        trainer.blocks.recv(w, ["w.block0", "w.block1"], [1, 1], [0, 1])
        trainer.blocks.fetch()
    trainer.blocks.pull({"w": w})
    trainer.close()
    return w.tolist()


def cut_last_record(directory: Path) -> None:
    """What a kill before the last write leaves."""
    log = max(directory.glob("log.*"), key=lambda path: int(path.suffix[1:]))
    data = log.read_bytes()
    log.write_bytes(data[: data.rindex(b"REC1")])


def test_servers_that_were_killed_at_different_steps_go_back_to_the_common_one(tmp_path: Path) -> None:
    with both_served(tmp_path, "a") as (plan, _):
        assert steps(plan, 3) == [3.0, 3.0]
    cut_last_record(tmp_path / "server_0")
    with both_served(tmp_path, "b") as (plan, failures):
        assert steps(plan, 0) == [2.0, 2.0], "server 1 had done step 3, and server 0 had not"
        assert steps(plan, 2) == [4.0, 4.0]
    assert not failures
    with both_served(tmp_path, "b") as (plan, _):
        assert steps(plan, 0) == [4.0, 4.0], "the same job resumes"


def test_servers_whose_states_cannot_belong_together_refuse_with_the_numbers(tmp_path: Path) -> None:
    with both_served(tmp_path, "a") as (plan, _):
        steps(plan, 3)
    for _ in range(2):
        cut_last_record(tmp_path / "server_0")
    message = r"different jobs: server 0 step 1, server 1 step 3"
    with both_served(tmp_path, "b") as (plan, failures), pytest.raises(RejectedError, match=message):
        steps(plan, 1)
    assert failures


def test_a_server_that_has_lost_its_state_is_an_error_that_says_so(tmp_path: Path) -> None:
    with both_served(tmp_path, "a") as (plan, _):
        steps(plan, 3)
    for path in (tmp_path / "server_0").glob("*.*"):
        path.unlink()
    message = r"no state.*server 0 no state, server 1 step 3"
    with both_served(tmp_path, "b") as (plan, _), pytest.raises(RejectedError, match=message):
        steps(plan, 1)


def test_a_new_job_meets_as_if_there_had_been_none(tmp_path: Path) -> None:
    for job in ("a", "b", "b"):
        with served(trainers=1, directory=tmp_path, job=job) as (_, plan):
            trainer = Trainer(plan, 0, SETTINGS)
            for _ in range(3 if job == "a" else 1):
                assert trainer.group.all_gather_bytes(job.encode(), "names") == [job.encode()]
            trainer.leave()
