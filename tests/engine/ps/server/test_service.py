"""What a parameter server does in each mode, over real sockets."""

# SPDX-License-Identifier: Apache-2.0
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from argosy.engine.errors import RejectedError
from argosy.engine.ps.protocol.job_plan import Compensation, JobPlan
from argosy.engine.ps.server import service as module
from argosy.engine.ps.server.service import Service
from argosy.engine.ps.trainer.trainer import Trainer
from tests.engine.ps.served import SETTINGS, PlainSgd, served, step


def trainers_of(plan: JobPlan) -> list[Trainer]:
    return [Trainer(plan, number, SETTINGS) for number in range(plan.trainers)]


def all_do(trainers: list[Trainer], what: Callable[[Trainer], Any]) -> list[Any]:
    """Each in a thread of its own; their results."""
    results: list[Any] = [None] * len(trainers)

    def run(number: int) -> None:
        try:
            results[number] = what(trainers[number])
        except Exception as e:
            results[number] = e

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(trainers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "a trainer hangs"
    for one in results:
        if isinstance(one, Exception):
            raise one
    return results


def close(trainers: list[Trainer]) -> None:
    for trainer in trainers:
        trainer.close()


def test_sync_applies_the_mean_once_all_have_sent_theirs() -> None:
    with served() as (service, plan):
        trainers = trainers_of(plan)
        values = all_do(trainers, lambda t: step(t, torch.full((3,), 1.0 + t.number)))
        assert all((w == -1.5).all() for w in values)
        assert service.steps.done == 1
        close(trainers)


def test_a_table_gets_the_mean_over_the_trainers() -> None:
    with served() as (service, plan):
        trainers = trainers_of(plan)
        rows = torch.tensor([[[1.0, 0.0]], [[0.0, 2.0]]])
        all_do(trainers, lambda t: step(t, torch.zeros(3), 1.0, rows * (1 + t.number)))
        wanted = 1.0 - torch.tensor([[1.5, 0.0], [0.0, 3.0]])
        assert (trainers[0].rows.start_pull("table", torch.tensor([5, 7])).wait() == wanted).all()
        assert len(service.state.tables["table"]) == 2
        close(trainers)


def test_async_applies_each_gradient_as_it_comes() -> None:
    with served(mode="async") as (_, plan):
        trainers = trainers_of(plan)
        for trainer in trainers:
            step(trainer, torch.ones(3))
        value = torch.empty(3)
        trainers[0].blocks.pull({"w": value})
        assert (value == -2.0).all()
        close(trainers)


def test_half_async_applies_at_once_and_keeps_the_trainers_in_step() -> None:
    with served(mode="half_async") as (_, plan):
        trainers = trainers_of(plan)
        for number in range(3):
            values = all_do(trainers, lambda t: step(t, torch.ones(3)))
            assert all((w == -2.0 * (number + 1)).all() for w in values)
        waiting = threading.Thread(target=step, args=(trainers[0], torch.ones(3)))
        waiting.start()
        waiting.join(0.5)
        assert waiting.is_alive(), "it did not wait for the other one"
        step(trainers[1], torch.ones(3))
        waiting.join(20)
        close(trainers)


def test_who_has_left_is_not_waited_for() -> None:
    with served(trainers=3) as (_, plan):
        trainers = trainers_of(plan)
        trainers[2].leave()
        values = all_do(trainers[:2], lambda t: step(t, torch.full((3,), 1.0 + t.number)))
        assert all((w == -1.5).all() for w in values)
        close(trainers)


def test_a_dead_trainer_is_dropped_from_the_barriers_if_the_user_chose_so() -> None:
    with served(drops_dead=True) as (service, plan):
        alive, dead = trainers_of(plan)
        dead.blocks.send(torch.full((3,), 100.0), 1.0, ["w"], [3], [0])
        dead.blocks.send_rest()
        time.sleep(0.2)
        dead.close()  # without a word, like a killed process
        assert (step(alive, torch.ones(3)) == -1.0).all(), "its half of a step must not count"
        assert service.membership.live == {0}
        again = Trainer(plan, 1, SETTINGS)
        values = all_do([alive, again], lambda t: step(t, torch.ones(3)))
        assert all((w == -2.0).all() for w in values), "back again, it counts again"
        close([alive, again])


def test_a_server_says_who_has_not_come_yet(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_MISSING_S", 0.1)
    with served(trainers=3) as (_, plan):
        first, end = Trainer(plan, 0, SETTINGS), time.monotonic() + 20
        while "trainers 1, 2: not connected yet; see the workerlogs" not in caplog.text:
            assert time.monotonic() < end
            time.sleep(0.05)
        first.close()


def test_who_is_dead_as_the_launcher_says_is_not_waited_for(tmp_path: Path) -> None:
    dead_workers = tmp_path / "dead_workers"
    with served(dead_workers=dead_workers) as (service, plan):
        alive, dead = trainers_of(plan)
        waiting = threading.Thread(target=step, args=(alive, torch.ones(3)))
        waiting.start()
        dead_workers.write_text("1\n")
        waiting.join(20)
        assert service.membership.live == {0}
        close([alive, dead])


def test_a_dead_trainer_ends_the_job_otherwise() -> None:
    with served(stays=False, may_fail=True) as (_, plan):
        alive, dead = trainers_of(plan)
        dead.close()
        with pytest.raises(
            RejectedError, match=r"trainer 1 has been unresponsive for 1 s.*--dead_worker=drop"
        ):
            step(alive, torch.ones(3))
        alive.close()


def test_compensation_gets_what_the_trainer_pulled_last() -> None:
    updater = PlainSgd(w=torch.zeros(3))
    with served(mode="async", updater=updater, compensation=Compensation()) as (_, plan):
        first, second = trainers_of(plan)
        value = torch.empty(3)
        first.blocks.pull({"w": value})
        step(second, torch.ones(3))
        step(first, torch.ones(3))
        assert updater.backups[1] is not None
        assert (updater.backups[1] == 0.0).all(), "first pulled before second pushed"
        close([first, second])


def test_gradients_are_added_up_over_steps_before_they_are_sent() -> None:
    with served(trainers=1, mode="async", merged_steps=3) as (_, plan):
        (trainer,) = trainers_of(plan)
        values = [step(trainer, torch.full((3,), float(n))) for n in (1, 2, 4, 1, 1, 1)]
        assert [w[0].item() for w in values[:2]] == [0.0, 0.0]
        value = torch.empty(3)
        trainer.blocks.pull({"w": value})
        assert (value == -10.0).all()
        trainer.close()


def test_parameters_are_fetched_only_every_nth_step() -> None:
    with served(trainers=1, mode="async", pull_every=2) as (_, plan):
        (trainer,) = trainers_of(plan)
        w = torch.zeros(3)
        for wanted in (0.0, -2.0, -2.0, -4.0):
            trainer.blocks.send(torch.ones(3), 1.0, ["w"], [3], [0])
            trainer.blocks.end_step()
            trainer.blocks.recv(w, ["w"], [3], [0])
            trainer.blocks.fetch()
            if wanted:  # a pull may overtake the update of its own step
                assert wanted <= w[0].item() <= wanted + 1
        trainer.close()


def test_trainers_meet_and_exchange_bytes() -> None:
    with served(trainers=3) as (_, plan):
        trainers = trainers_of(plan)
        met = all_do(trainers, lambda t: t.group.all_gather_bytes(b"%d" % t.number, "names"))
        assert met == [[b"0", b"1", b"2"]] * 3
        sums = all_do(trainers, lambda t: t.group.all_reduce(torch.tensor([t.number, 10]), "sum", "sum"))
        assert all(actual.tolist() == [3, 30] for actual in sums)
        swapped = all_do(
            trainers, lambda t: t.group.all_to_all([b"%d to %d" % (t.number, to) for to in range(3)])
        )
        assert swapped[1] == [b"0 to 1", b"1 to 1", b"2 to 1"]
        assert all_do(trainers, lambda t: t.group.all_to_all([b"", b"", b""]))[0] == [b""] * 3
        close(trainers)


def test_trainers_and_servers_must_agree() -> None:
    with served(mode="sync") as (_, plan):
        other = JobPlan(plan.endpoints, 3, "sync", plan.dense, plan.tables)
        with pytest.raises(RejectedError, match="disagree on trainers: 3 and 2"):
            Trainer(other, 0, SETTINGS)
        other = JobPlan(plan.endpoints, 2, "async", plan.dense, plan.tables)
        with pytest.raises(RejectedError, match="disagree on mode: 'async' and 'sync'"):
            Trainer(other, 0, SETTINGS)
        other = JobPlan(plan.endpoints, 2, "sync", plan.dense, ())
        with pytest.raises(RejectedError, match="disagree on tables: 'table\\[2\\]' is on one side only"):
            Trainer(other, 0, SETTINGS)


def add_changes(service: Service) -> None:
    """What the program of a geo server does with a push."""
    updater = service.state.updater
    updater.apply_block = lambda block, delta, *_: updater.values()[block].add_(delta)  # type: ignore[method-assign]


def test_geo_follows_its_definition() -> None:
    """delta = (w - old) / trainers goes to the server; what the server has more than old comes back."""
    with served(mode="geo", k_steps=2) as (service, plan):
        trainers = trainers_of(plan)
        mine = [torch.zeros(3), torch.zeros(3)]
        old, server = [torch.zeros(3), torch.zeros(3)], torch.zeros(3)
        for trainer, w in zip(trainers, mine, strict=True):
            trainer.geo.begin({"w": w})
        wanted = [torch.zeros(3), torch.zeros(3)]
        add_changes(service)
        for number, which in enumerate((0, 1, 0, 0, 1, 1, 0, 1)):
            change = torch.full((3,), float(number + 1))
            mine[which] += change
            wanted[which] += change
            trainers[which].geo.step([mine[which]], ["w"])
            if trainers[which].geo._steps % 2 == 0:
                delta = (wanted[which] - old[which]) / 2
                old[which] += delta
                server += delta
                wanted[which] += server - old[which]
                old[which] = server.clone()
            torch.testing.assert_close(mine[which], wanted[which])
        torch.testing.assert_close(dict(service.state.updater.values())["w"], server)
        close(trainers)


def test_geo_exchanges_only_the_rows_that_somebody_has_changed() -> None:
    with served(mode="geo", k_steps=1) as (service, plan):
        add_changes(service)
        first, second = trainers_of(plan)
        w = torch.zeros(3)
        for trainer in (first, second):
            trainer.geo.begin({"w": w.clone()})
            trainer.lookups.lookup("table", [torch.tensor([1, 2, 3])])
        first.lookups.lookup("table", [torch.tensor([1, 2])])
        first.lookups.push_rows(
            "table", [torch.tensor([1, 2])], [torch.tensor([[2.0, 0.0], [4.0, 0.0]])], 1.0
        )
        first.geo.step([w.clone()], ["w"])
        asked = second.rows.changed("table")
        assert asked[0].tolist() == [1, 2, 3], "all are new to it"
        first.lookups.push_rows("table", [torch.tensor([2])], [torch.tensor([[4.0, 0.0]])], 1.0)
        first.geo.step([w.clone()], ["w"])
        ids, rows = second.rows.changed("table")
        assert ids.tolist() == [2], "only what has changed since"
        # It was 1; the trainer's -3 brings half of -4; its -7 then brings half of what it has more: -6.
        assert rows.tolist() == [[-4.0, 1.0]]
        close([first, second])


def test_a_server_without_its_state_says_so(tmp_path: Path) -> None:
    with served(trainers=1) as (_, plan):
        (trainer,) = trainers_of(plan)
        for _ in range(3):
            step(trainer, torch.ones(3))
        trainer.connection.next_step = 9
        with pytest.raises(RejectedError, match=r"sends step 9, and this server has done 3"):
            step(trainer, torch.ones(3))
        trainer.close()


def test_half_async_resumes_from_a_snapshot_that_is_older_than_the_trainers() -> None:
    with served(mode="half_async") as (service, plan):
        trainers = trainers_of(plan)
        for trainer in trainers:
            trainer.connection.next_step = 9
        for number in (9, 10):
            all_do(trainers, lambda trainer: step(trainer, torch.ones(3)))
            assert service.steps.done == number
        close(trainers)


def test_a_restarted_trainer_replaces_the_contribution_of_its_previous_incarnation() -> None:
    with served() as (service, plan):
        first, second = trainers_of(plan)
        second.blocks.send(torch.full((3,), 9.0), 1.0, ["w"], [3], [0])
        second.lookups.push_rows("table", [torch.tensor([5])], [torch.full((1, 2), 9.0)], 1.0)
        second.blocks.end_step()
        time.sleep(0.3)
        second.close()
        again = Trainer(plan, 1, SETTINGS)
        assert again.connection.next_step == 1, "what its former process has sent is not sent again"
        rows = torch.ones(2, 1, 2)
        waiting = threading.Thread(target=step, args=(again, torch.ones(3), 1.0, rows))
        waiting.start()
        time.sleep(0.5)
        assert (step(first, torch.ones(3), 1.0, rows) == -1.0).all()
        waiting.join(20)
        assert first.rows.start_pull("table", torch.tensor([5])).wait().tolist() == [[0.0, 0.0]]
        assert service.steps.done == 1
        close([first, again])


def test_a_dropped_trainer_that_continues_gets_an_error() -> None:
    with served(drops_dead=True) as (service, plan):
        first, second = trainers_of(plan)
        service.registry.on_unresponsive(1)
        with pytest.raises(RejectedError, match="was dropped; restart it to rejoin"):
            step(second, torch.ones(3))
        assert (step(first, torch.ones(3)) == -1.0).all()
        close([first, second])


def test_sums_that_are_not_sent_yet_are_sent_when_a_trainer_leaves() -> None:
    with served(trainers=1, mode="async", merged_steps=3) as (service, plan):
        (trainer,) = trainers_of(plan)
        for _ in range(5):
            step(trainer, torch.ones(3), 1.0, torch.ones(2, 1, 2))
        trainer.leave()
        assert (dict(service.state.updater.values())["w"] == -5.0).all()
        assert service.state.tables["table"].pull(torch.tensor([5])).tolist() == [[-4.0, -4.0]]


def test_every_thread_adds_up_for_itself_and_sends_the_rest_when_it_ends() -> None:
    with served(trainers=1, mode="async", merged_steps=4) as (service, plan):
        (trainer,) = trainers_of(plan)

        def train() -> None:
            for _ in range(6):
                step(trainer, torch.ones(3))
            trainer.send_rest()

        all_do([trainer, trainer], lambda _: train())
        assert (dict(service.state.updater.values())["w"] == -12.0).all()
        close([trainer])


def test_rows_that_were_asked_for_ahead_are_not_asked_for_again() -> None:
    with served(trainers=1, mode="async") as (service, plan):
        (trainer,) = trainers_of(plan)
        batches = [torch.tensor([[n], [n + 1]]) for n in range(6)]
        for now, following in zip(batches, [*batches[1:], None], strict=True):
            if following is not None:
                trainer.lookups.prefetch("table", [following])
            trainer.lookups.lookup("table", [now])
        asked = service.rpc.counters()["requests"]["pull_rows"]
        assert asked == len(batches), "the first when it is looked up, the others ahead"
        trainer.close()


def test_a_trainer_in_a_collective_does_not_block_the_steps_of_others() -> None:
    with served() as (_, plan):
        first, second = trainers_of(plan)
        all_do([first, second], lambda t: step(t, torch.ones(3)))
        waiting = threading.Thread(target=first.group.barrier, args=("end",))
        waiting.start()
        time.sleep(0.3)
        assert (step(second, torch.ones(3)) == -2.0).all(), "it has one batch more"
        second.group.barrier("end")
        waiting.join(20)
        values = all_do([first, second], lambda t: step(t, torch.ones(3)))
        assert all((w == -3.0).all() for w in values), "then they step together"
        close([first, second])


def test_collectives_that_complete_at_once_leave_no_trainer_excluded() -> None:
    with served() as (service, plan):
        trainers = trainers_of(plan)

        def meet_often(trainer: Trainer) -> None:
            for _ in range(100):
                trainer.group.barrier("soon")

        all_do(trainers, meet_often)
        assert not service.membership.excluded
        assert all((w == -1.0).all() for w in all_do(trainers, lambda t: step(t, torch.ones(3))))
        close(trainers)
