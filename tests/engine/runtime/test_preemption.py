"""SIGTERM to a process that trains with a Checkpoint: it saves at the next step boundary, and exits to be requeued."""

# SPDX-License-Identifier: Apache-2.0
import os
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import argosy as paddle
from argosy import nn, static
from argosy.engine import env, process_effects
from argosy.engine.errors import ConfigError, Preempted
from argosy.engine.runtime import preemption
from argosy.engine.runtime.checkpoint import Checkpoint, Position
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import Scope
from tests.engine.runtime.sigterm import terminate
from tests.ranks import ForkServer

BATCHES = [np.full((2, 3), number, "float32") for number in range(6)]


class Training:
    """A program with values, its executor and its scope."""

    def __init__(self) -> None:
        self.main, startup, self.scope = static.Program(), static.Program(), Scope()
        with static.program_guard(self.main, startup), paddle.utils.unique_name.guard():
            loss = paddle.mean(nn.Linear(3, 1)(static.data("x", [None, 3])) ** 2)
            paddle.optimizer.Momentum(0.01, 0.9).minimize(loss)
        self.main.random_seed = startup.random_seed = 7
        self.exe = Executor()
        self.exe.run(startup, scope=self.scope)

    def step(self, batch: Any) -> None:
        self.exe.run(self.main, feed={"x": batch}, scope=self.scope)

    def weights(self) -> list[Any]:
        return [self.scope.get(name).numpy().copy() for name in self.main.persistables()]


def run(folder: Path, stop_in: int = -1) -> tuple[list[int], list[Any]]:
    """Train in a loop of `batches`; gives the trained batches and the weights."""
    training, seen = Training(), []
    checkpoint = Checkpoint(folder, every=4)
    batches = checkpoint.batches(BATCHES, 2, training.exe, training.main, training.scope)
    for epoch, number, batch in batches:
        seen.append(6 * epoch + number)
        if seen[-1] == stop_in:
            terminate(os.getpid())
        training.step(batch)
    return seen, training.weights()


def a_loop_stops_and_resumes() -> None:
    folder = Path(tempfile.mkdtemp())
    straight = run(folder / "straight")
    assert straight[0] == list(range(12))
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, "restored at the end of the loop"
    with pytest.raises(SystemExit, match="preempted: step 9 is saved in .*/stopped/step-00000009") as error:
        run(folder / "stopped", stop_in=8)
    assert error.value.code == 77
    assert isinstance(error.value, Preempted)
    assert sorted(path.name for path in (folder / "stopped").iterdir()) == [f"step-{n:08}" for n in (4, 8, 9)]
    os.kill(os.getpid(), signal.SIGTERM)  # a repeated signal, while the process exits
    with pytest.raises(SystemExit):  # the job is still to stop: a loop that begins now saves nothing new
        run(folder / "stopped")
    preemption._preemption = None  # as in a new process
    resumed = run(folder / "stopped")
    assert resumed[0] == [9, 10, 11]
    for one, other in zip(resumed[1], straight[1], strict=True):
        np.testing.assert_array_equal(one, other)


def a_loop_of_the_user_stops() -> None:
    training, checkpoint = Training(), Checkpoint(tempfile.mkdtemp())
    with pytest.raises(ConfigError, match="exit_for_requeue before a checkpoint was saved"):
        checkpoint.exit_for_requeue()
    assert not checkpoint.preempted()
    assert "preemption-signal" in [effect.name for effect in process_effects.installed()]
    child = os.fork()
    if child == 0:  # a forked child has no thread that would handle it
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(20)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
    stopped = 0
    for step, batch in enumerate(BATCHES, 1):
        training.step(batch)
        if step == 3:
            terminate(os.getpid())
        if checkpoint.preempted():
            stopped = step
            break
    assert stopped == 3
    checkpoint.save(step, training.exe, training.main, epoch=0, batch=3, scope=training.scope)
    with pytest.raises(SystemExit, match="step 3 is saved") as error:
        checkpoint.exit_for_requeue()
    assert error.value.code == 77
    assert checkpoint.restore(training.exe, training.main, training.scope) == Position(3, 0, 3)


def a_request_before_the_first_step_saves_the_initial_values() -> None:
    folder = Path(tempfile.mkdtemp())
    training, checkpoint = Training(), Checkpoint(folder)
    batches = checkpoint.batches(BATCHES, 1, training.exe, training.main, training.scope)
    terminate(os.getpid())
    with pytest.raises(SystemExit, match="step 0 is saved"):
        next(iter(batches))
    preemption._preemption = None  # as in a new process
    assert run(folder)[0] == list(range(12))


def a_handler_of_the_script_is_replaced_and_restored() -> None:
    calls: list[int] = []
    handler = lambda number, frame: calls.append(number)  # noqa: E731
    signal.signal(signal.SIGTERM, handler)
    assert run(Path(tempfile.mkdtemp()))[0] == list(range(12))
    assert signal.getsignal(signal.SIGTERM) is handler
    thread = threading.Thread(target=preemption.watch)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is handler, "only the main thread can handle signals"


def nothing_is_handled_without_a_grace_period() -> None:
    before = threading.active_count()
    assert not Checkpoint(tempfile.mkdtemp()).preempted()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert threading.active_count() == before


CASES = (
    a_loop_stops_and_resumes,
    a_loop_of_the_user_stops,
    a_request_before_the_first_step_saves_the_initial_values,
    a_handler_of_the_script_is_replaced_and_restored,
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_in_a_job_with_a_grace_period(case: Any, ranks: ForkServer) -> None:
    ranks.check(1, case, ARGOSY_REQUEUE_CODE="77")


def test_in_a_job_without_a_grace_period(ranks: ForkServer) -> None:
    ranks.check(1, nothing_is_handled_without_a_grace_period)


def test_the_requeue_code_is_an_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    assert env.requeue_code() is None
    monkeypatch.setenv("ARGOSY_REQUEUE_CODE", "85")
    assert env.requeue_code() == 85
    monkeypatch.setenv("ARGOSY_REQUEUE_CODE", "300")
    with pytest.raises(ConfigError, match="ARGOSY_REQUEUE_CODE=300 is not an exit code"):
        env.requeue_code()
