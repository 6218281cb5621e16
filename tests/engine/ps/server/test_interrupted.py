"""Steps, barriers and leaves that are interrupted: by errors, restarts, pauses, slow updates."""

# SPDX-License-Identifier: Apache-2.0
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from argosy.engine.errors import RejectedError
from argosy.engine.ps.rpc import server as rpc_server
from argosy.engine.ps.server import service as module
from argosy.engine.ps.trainer.trainer import Trainer
from tests.engine.ps.served import SETTINGS, PlainSgd, served, step
from tests.engine.ps.server.test_service import all_do, close, trainers_of

ROWS = torch.ones(2, 1, 2)


class SlowSgd(PlainSgd):
    """Needs a while for an update."""

    def __init__(self, seconds: float, **values: Tensor) -> None:
        super().__init__(**values)
        self._seconds = seconds

    def apply(self, gradients: Mapping[str, Tensor], rates: Mapping[str, float]) -> None:
        time.sleep(self._seconds)
        super().apply(gradients, rates)


def until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_after_a_collective_no_trainer_does_a_step_alone() -> None:
    with served(trainers=3) as (service, plan):
        trainers = trainers_of(plan)

        def train(trainer: Trainer) -> Tensor:
            pauses = random.Random(trainer.number)
            for _ in range(15):
                trainer.group.all_to_all([b"x" * (1 + trainer.number * 100_000)] * 3)
                time.sleep(pauses.random() / 100)
                w = step(trainer, torch.ones(3))
            return w

        assert all((w == -15.0).all() for w in all_do(trainers, train))
        assert service.steps.done == 15
        close(trainers)


def test_a_step_that_an_error_interrupts_is_restarted_and_applied_once() -> None:
    with served() as (service, plan):
        first, second = trainers_of(plan)
        second.blocks.send(torch.full((3,), 9.0), 1.0, ["w"], [3], [0])
        second.blocks._flush()
        second.lookups.push_rows("table", [torch.tensor([5])], [torch.full((1, 2), 9.0)], 1.0)
        second.begin_step()
        actual = all_do([first, second], lambda t: step(t, torch.ones(3), 1.0, ROWS))
        assert all((w == -1.0).all() for w in actual)
        assert service.state.tables["table"].pull(torch.tensor([5])).tolist() == [[0.0, 0.0]]
        close([first, second])


def test_who_leaves_amid_a_step_does_not_wait_for_its_end() -> None:
    with served() as (service, plan):
        first, second = trainers_of(plan)
        second.blocks.send(torch.full((3,), 9.0), 1.0, ["w"], [3], [0])
        second.blocks._flush()
        second.leave()
        assert service.membership.live == {0}
        assert (step(first, torch.ones(3)) == -1.0).all()
        close([first])


def test_half_async_trainers_of_different_steps_all_continue_with_a_server_of_an_older_step() -> None:
    with served(mode="half_async") as (_, plan):
        first, second = trainers_of(plan)
        first.connection.next_step, second.connection.next_step = 45, 46
        behind = threading.Thread(target=step, args=(first, torch.ones(3), 1.0, ROWS))
        behind.start()
        time.sleep(0.3)
        before = threading.Thread(target=step, args=(second, torch.ones(3), 1.0, ROWS))
        before.start()
        behind.join(10)
        assert not behind.is_alive(), "what it waits for is over"
        step(first, torch.ones(3), 1.0, ROWS)
        before.join(10)
        assert not before.is_alive()
        close([first, second])


def test_a_trainer_that_was_unresponsive_for_a_while_continues() -> None:
    with served(stays=True) as (service, plan):
        trainers = trainers_of(plan)
        service.membership.unresponsive[1] = time.monotonic() - 100
        until(lambda: not service.membership.unresponsive)
        all_do(trainers, lambda t: step(t, torch.ones(3)))
        close(trainers)


def test_a_trainer_without_the_result_of_a_collective_gets_it_from_the_restarted_server(
    tmp_path: Path,
) -> None:
    with served(directory=tmp_path) as (_, plan):
        endpoint = plan.endpoints[0]
        first, second = trainers_of(plan)
        sums = all_do([first, second], lambda t: t.group.all_reduce(torch.tensor([t.number + 1]), "sum", "s"))
        assert [int(s) for s in sums] == [3, 3]
    with served(directory=tmp_path, endpoint=endpoint):
        second.group._numbers["back"] -= 1  # as if it had not received the result of the last collective
        second.group._join("back", second.group._next_number("back"))
        close([first, second])


def test_after_a_kill_steps_wait_for_rejoined_trainers_and_not_for_those_that_left(tmp_path: Path) -> None:
    with served(directory=tmp_path) as (_, plan):
        endpoint = plan.endpoints[0]
        first, second = trainers_of(plan)
        second.leave()
        assert (step(first, torch.ones(3)) == -1.0).all()
    with served(directory=tmp_path, endpoint=endpoint) as (service, plan):
        assert (step(first, torch.ones(3)) == -2.0).all()
        assert service.membership.live == {0}
        again = Trainer(plan, 1, SETTINGS)
        all_do([first, again], lambda t: step(t, torch.ones(3)))
    with served(directory=tmp_path, endpoint=endpoint) as (service, _):
        assert all((w == -4.0).all() for w in all_do([first, again], lambda t: step(t, torch.ones(3))))
        assert service.membership.live == {0, 1}
        close([first, again])


def test_a_stop_while_an_update_runs_applies_no_step_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc_server, "_END_S", 0.2)
    with served(trainers=1, directory=tmp_path, updater=SlowSgd(1.5, w=torch.zeros(3))) as (service, plan):
        endpoint = plan.endpoints[0]
        (trainer,) = trainers_of(plan)

        def stop_amid_update() -> None:
            until(lambda: service.steps.applying_step > 0)
            service.stop()

        stopping = threading.Thread(target=stop_amid_update)
        stopping.start()
        with pytest.raises(RejectedError, match="stopped before it could reply"):
            step(trainer, torch.ones(3))
    stopping.join()
    time.sleep(1.5)  # now the update has ended, too
    with served(trainers=1, directory=tmp_path, endpoint=endpoint):
        trainer.begin_step()
        assert (step(trainer, torch.ones(3)) == -1.0).all()
        close([trainer])


def test_progress_of_a_long_update_extends_the_deadline_of_trainers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PROGRESS_S", 0.2)
    with served(trainers=1, updater=SlowSgd(4.0, w=torch.zeros(3))) as (_, plan):
        impatient = Trainer(plan, 0, replace(SETTINGS, deadline_s=3.0))
        assert (step(impatient, torch.ones(3)) == -1.0).all()
        close([impatient])


def test_a_snapshot_that_fails_does_not_end_the_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    more = {"snapshot_s": 0.1, "durability": "snapshot"}
    with served(mode="async", directory=tmp_path, drops_dead=True, **more) as (service, plan):
        trainers = trainers_of(plan)

        def fail(step: int) -> None:
            raise RuntimeError("no room")

        monkeypatch.setattr(service.snapshots, "take", fail)
        until(lambda: "a snapshot could not be written: no room; retrying" in caplog.text)
        monkeypatch.undo()
        close(trainers)


def test_a_pull_is_one_in_every_step_also_where_the_program_fetches_more_seldom() -> None:
    with served(trainers=1, mode="async", pull_every=4) as (_, plan):
        (trainer,) = trainers_of(plan)
        step(trainer, torch.ones(3))
        value = torch.full((3,), 7.0)
        trainer.blocks.pull({"w": value})
        assert (value == -1.0).all()
        close([trainer])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_norms_survive_a_snapshot_bit_for_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    norm = torch.tensor([1 / 3], dtype=dtype)
    with served(directory=tmp_path) as (service, plan):
        close(trainers_of(plan))  # it replies: it has taken its first snapshot
        service.norms.known[7] = norm
        service.snapshots.take(0)
    with served(directory=tmp_path) as (service, plan):
        close(trainers_of(plan))  # it replies: it has read all
        assert torch.equal(service.norms.known[7], norm)
        assert service.norms.known[7].dtype == dtype
