"""SIGTERM in a job with a grace period (fleetrun --grace): the training stops at a step boundary, to be saved.

SIGTERM ──▶ handler ──▶ collective/preemption.py: the processes agree on a boundary ──▶ Checkpoint saves, and exits
"""

# SPDX-License-Identifier: Apache-2.0
import os
import signal
import threading
from types import FrameType

from argosy.engine import env, process_effects
from argosy.engine.collective import World, world
from argosy.engine.collective.preemption import Preemption, PreemptionChannel, SingleProcess, StoreChannel
from argosy.engine.log import logger
from argosy.engine.ps.trainer.preemption import ServerChannel
from argosy.engine.ps.trainer.trainer import Trainer, current, is_connected

_EFFECT = "preemption-signal"
_preemption: tuple[World | Trainer, Preemption] | None = None
"""Of this process, and the job whose processes it stops with."""


def watch() -> None:
    """Handle SIGTERM from now on, if ARGOSY_REQUEUE_CODE is set; all processes of the job call it."""
    global _preemption  # noqa: PLW0603  (a process has one SIGTERM handler)
    if env.requeue_code() is None:
        return
    job = current() if is_connected() else world()
    if _preemption is None or _preemption[0] is not job:
        _preemption = (job, Preemption(_channel(job)))
    if threading.current_thread() is not threading.main_thread():
        logger.warning("SIGTERM to this process saves no checkpoint: only the main thread can handle signals")
        return
    process_effects.install(_EFFECT, _install)


def unwatch() -> None:
    """Restore the previous handler of SIGTERM, unless the job is being preempted: this process ends by itself then."""
    if _preemption is not None and not _preemption[1].is_requested:
        process_effects.undo(_EFFECT)


def at_boundary() -> bool:
    """Called between two steps by all processes of the job; True at the boundary at which all of them stop."""
    return _preemption is not None and _preemption[1].at_boundary()


def _channel(job: World | Trainer) -> PreemptionChannel:
    if isinstance(job, Trainer):
        return ServerChannel(job.connection)
    return SingleProcess() if job.store is None else StoreChannel(job)


def _install() -> process_effects.Undo:
    previous, pid = signal.getsignal(signal.SIGTERM), os.getpid()
    if callable(previous):
        logger.warning(
            "--grace: a SIGTERM handler of the script is replaced while it trains with a Checkpoint"
        )

    def stop(number: int, frame: FrameType | None) -> None:
        # A forked child has inherited this handler, but not the thread.
        if os.getpid() != pid or _preemption is None or not _preemption[1].request():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)

    def undo() -> None:
        if signal.getsignal(signal.SIGTERM) is stop and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL if previous is None else previous)

    return undo
