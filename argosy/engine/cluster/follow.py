"""Follow a job on a cluster: print its log, report how it ended, cancel it on Ctrl-C."""

# SPDX-License-Identifier: Apache-2.0
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from argosy.engine import process_effects
from argosy.engine.cluster.engine import Engine
from argosy.engine.launch.console import logger


class _Interrupted(BaseException):
    """A signal to fleetrun while it follows a job."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def follow(engine: Engine, job_id: str, requeue_code: int | None = None) -> int:
    """Print the job's log until it has ended; returns the exit code.

    A signal cancels the job, except one that lives on without fleetrun: that one is left running. `requeue_code`: the
    exit code of a job that has saved a checkpoint before it was cancelled (--grace).
    """
    try:
        with _signals_raise():
            for line in engine.logs(job_id):
                print(line, flush=True)
            outcome = engine.wait(job_id)
    except _Interrupted as interrupted:
        if engine.is_detached:
            logger.warning(
                "job %s continues; follow it again: fleetrun --on=%s --attach %s", job_id, engine.name, job_id
            )
        else:
            engine.cancel(job_id)
            name = signal.Signals(interrupted.number).name
            if requeue_code is not None and engine.wait(job_id).code == requeue_code:
                logger.warning("%s: job %s has saved a checkpoint, and was cancelled", name, job_id)
                return requeue_code
            logger.warning("%s: job %s was cancelled", name, job_id)
        return 128 + interrupted.number
    if outcome.code == 0:
        logger.info("job %s completed: %s", job_id, outcome.reason)
    else:
        print(
            f"error: job {job_id} on {engine.name} ended with exit code {outcome.code}: {outcome.reason}",
            file=sys.stderr,
        )
    return outcome.code


@contextmanager
def _signals_raise() -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP raise in the main thread; one that is ignored (nohup) stays ignored."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        for handled in before:
            signal.signal(handled, signal.SIG_IGN)  # the job is being cancelled: not twice
        raise _Interrupted(number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {n: old for n in numbers if (old := signal.getsignal(n)) != signal.SIG_IGN}
    with process_effects.during("launcher-signals"):
        for number in before:
            signal.signal(number, interrupt)
        try:
            yield
        finally:
            for number, old in before.items():
                signal.signal(number, old)
