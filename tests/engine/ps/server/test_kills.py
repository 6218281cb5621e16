"""kill -9 at random moments: what a server has acknowledged survives its restart, and no process hangs."""

# SPDX-License-Identifier: Apache-2.0
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from argosy.engine.ps.rpc.sockets import RpcSettings
from argosy.engine.ps.server.service import Service
from argosy.engine.ps.trainer.trainer import Trainer
from tests.engine.ps.served import PlainSgd, plan_of, step
from tests.ranks import ForkServer, Job, free_endpoint

SIZE = 20_000
"""Large enough that a kill hits the writing of a record."""
ROUNDS = {"sync": 12, "async": 8, "half_async": 8, "geo": 8}


def serve() -> None:
    """A server process, as the launcher would restart it."""
    torch.set_num_threads(1)
    endpoint, directory = os.environ["AT"], Path(os.environ["STATE"])
    settings = RpcSettings(
        heartbeat_s=0.2, heartbeat_timeout_s=float(os.environ.get("SILENT", "20")), token="secret"
    )
    updater = PlainSgd(w=torch.zeros(SIZE))
    plan = plan_of(endpoint, int(os.environ["TRAINERS"]), os.environ.get("MODE", "sync"), SIZE)
    drops = os.environ.get("DROPS") == "1"
    print("serving", flush=True)
    Service(plan, 0, updater, settings, directory, drops_dead=drops, stays=True).serve()


@contextmanager
def server(ranks: ForkServer, endpoint: str, state: Path, trainers: int, **more: str) -> Iterator[Job]:
    with ranks.start(1, serve, AT=endpoint, STATE=str(state), TRAINERS=str(trainers), **more) as job:
        job.wait_for(0, "serving")
        yield job


class Training:
    """Trainers in threads, each of which adds 1 to every element and to a row in every step."""

    def __init__(self, endpoint: str, trainers: int, mode: str) -> None:
        self.plan = plan_of(endpoint, trainers, mode, SIZE)
        self.settings = RpcSettings(deadline_s=60.0, heartbeat_s=0.2, retry_s=0.1, token="secret")
        self.acknowledged = [0] * trainers
        self.seen: list[float] = []
        self.errors: list[Exception] = []
        self.last_step = sys.maxsize
        self._trainers = [Trainer(self.plan, number, self.settings) for number in range(trainers)]
        self._threads = [threading.Thread(target=self._train, args=(n,)) for n in range(trainers)]
        for thread in self._threads:
            thread.start()

    def _train(self, number: int) -> None:
        trainer = self._trainers[number]
        try:
            while self.acknowledged[number] < self.last_step:
                w = self._step(trainer)
                self.acknowledged[number] += 1
                done = self.acknowledged[number]
                is_right = w == done if self.plan.mode == "sync" else w >= done
                assert is_right.all(), f"{w[0]} after {done} steps"
                if self.plan.is_synchronous:  # else one may have ended when another reaches a barrier
                    self._run_collectives(trainer, done)
        except Exception as e:
            self.errors.append(e)

    def _step(self, trainer: Trainer) -> torch.Tensor:
        if self.plan.mode != "geo":
            return step(trainer, -torch.ones(SIZE), 1.0, -torch.ones(2, 1, 2))
        w = torch.empty(SIZE)
        trainer.blocks.push_deltas({"w": -torch.ones(SIZE)})
        trainer.rows.push("table", torch.tensor([5, 7]), torch.ones(2, 2), 1.0)
        trainer.connection.wait_acked()
        trainer.blocks.pull({"w": w})
        return w

    def _run_collectives(self, trainer: Trainer, steps: int) -> None:
        """Kills also interrupt barriers and all-to-alls."""
        if steps % 3 == 0:
            assert trainer.group.all_gather_bytes(b"%d" % steps, "steps") == [b"%d" % steps] * 2
        if steps % 5 == 0:
            actual = trainer.group.all_to_all([b"%d to %d" % (trainer.number, to) for to in (0, 1)])
            assert actual == [b"%d to %d" % (sender, trainer.number) for sender in (0, 1)]

    def end(self) -> tuple[float, float]:
        """An element and a row, when all trainers have done as many steps."""
        self.last_step = max(self.acknowledged) + 3  # none has begun that one yet
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a trainer hangs"
        if self.errors:
            raise self.errors[0]
        value = torch.empty(SIZE)
        self._trainers[0].blocks.pull({"w": value})
        row = self._trainers[0].rows.start_pull("table", torch.tensor([5])).wait()
        for trainer in self._trainers:
            trainer.close()
        assert (value == value[0]).all()
        return value[0].item(), row[0, 0].item()


@pytest.mark.timeout(280)
@pytest.mark.parametrize(
    "mode", ["sync", "geo", *(pytest.param(m, marks=pytest.mark.slow) for m in ("async", "half_async"))]
)
def test_nothing_that_a_server_has_acknowledged_is_lost_or_applied_twice(
    ranks: ForkServer, tmp_path: Path, mode: str
) -> None:
    endpoint, drawn = free_endpoint(), random.Random(7)
    training: Training | None = None
    for _ in range(ROUNDS[mode]):
        with server(ranks, endpoint, tmp_path, trainers=2, MODE=mode) as job:
            training = training or Training(endpoint, 2, mode)
            before = max(training.acknowledged)
            _until(lambda t=training, b=before: max(t.acknowledged) > b or bool(t.errors), 40)  # type: ignore[misc]
            time.sleep(drawn.random() * 0.08)
            job.kill(0, signal.SIGKILL)
            job.end_of(0)
    assert training is not None
    with server(ranks, endpoint, tmp_path, trainers=2, MODE=mode):
        value, row = training.end()
    steps = max(training.acknowledged)
    assert steps >= ROUNDS[mode]
    pushes = steps if mode == "sync" else sum(training.acknowledged)
    assert (value, row) == (pushes, 1.0 + pushes)


def train_until_killed() -> None:
    """A trainer process: steps, until it is killed or has done enough."""
    torch.set_num_threads(1)
    number, plan = int(os.environ["NUMBER"]), plan_of(os.environ["AT"], 2, "sync", SIZE)
    trainer = Trainer(plan, number, RpcSettings(deadline_s=60.0, heartbeat_s=0.2, token="secret"))
    until = int(os.environ["UNTIL"])
    print("trains", flush=True)
    while trainer.connection.next_step <= until:
        step(trainer, -torch.ones(SIZE), 1.0)
    trainer.leave()


@pytest.mark.timeout(200)
def test_trainers_that_are_killed_are_dropped_and_come_back(ranks: ForkServer, tmp_path: Path) -> None:
    """One trainer is killed at random moments and restarted; the other continues; every step is applied once."""
    endpoint, drawn = free_endpoint(), random.Random(3)
    given = {"AT": endpoint, "UNTIL": "1000000"}
    with server(ranks, endpoint, tmp_path, 2, DROPS="1", SILENT="1") as job:
        with ranks.start(1, train_until_killed, NUMBER="0", **given) as steady:
            for _ in range(8):
                with ranks.start(1, train_until_killed, NUMBER="1", **given) as other:
                    other.wait_for(0, "trains")
                    time.sleep(drawn.random() * 0.3)
                    other.kill(0, signal.SIGKILL)
                    other.end_of(0)
            steady.kill(0, signal.SIGKILL)
            steady.end_of(0)
        plan = plan_of(endpoint, 2, "sync", SIZE)
        last = Trainer(plan, 0, RpcSettings(deadline_s=60.0, heartbeat_s=0.2, token="secret"))
        after = step(last, -torch.ones(SIZE), 1.0)
        assert (after == after[0]).all()
        assert after[0].item() == last.connection.next_step - 1, (
            "every step adds one, however many trainers took part"
        )
        last.close()
        assert job.said(0).count("Traceback") == 0


def _until(happened: Callable[[], bool], seconds: float) -> None:
    limit = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < limit, "it did not happen"
        time.sleep(0.005)
