"""Run a job on this host from its first line to its exit code, with restarts."""

# SPDX-License-Identifier: Apache-2.0
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType

from argosy.engine import env
from argosy.engine.errors import ConfigError
from argosy.engine.launch import configuration, logs, ps_job, ps_layout, report, say, target
from argosy.engine.launch.attempt import Attempt
from argosy.engine.launch.configuration import Configuration
from argosy.engine.launch.guard import Guard
from argosy.engine.launch.layout import Layout, Placed, num_cores, place, plan, table
from argosy.engine.launch.processes import Events, Signalled
from argosy.engine.launch.ps_job import PsJob
from argosy.engine.launch.say import logger

QUICK_S = 3.0
"""A job that fails this soon after its start is likely to do so again."""


def run(config: Configuration, num_gpus: int | None = None, environ: Mapping[str, str] | None = None) -> int:
    """Start the processes of this host and wait for their end.

    Gives 0 (all ended well), 1 (one failed), or 128 + the number of the signal that ended the
    job. Raises ConfigError, with nothing started, if the job makes no sense on this host.
    """
    if threading.current_thread() is not threading.main_thread():
        raise ConfigError("a job can only be run from the main thread: only it gets signals; call it there")
    environ = env.variables() if environ is None else environ
    if configuration.mode(config) == "ps":
        return _run_with_servers(config, environ)
    command = target.command(config)
    layout = plan(config, environ, num_gpus)
    logs.prepare(config.log_dir)
    say.out(configuration.shown(config))
    with Guard() as guard, _signals() as events:
        placed = place(layout, restart=0)  # after the guard, which must not hold the socket; it may raise
        logs.rotate(config.log_dir)

        def prepare(placed: Placed) -> Attempt:
            return Attempt(placed=placed, command=command, config=config, guard=guard, events=events)

        with say.kept_in(logs.own_log(config.log_dir)):
            _say_what_is_odd(layout)
            return _run_with_restarts(layout, placed, prepare)


def _run_with_servers(config: Configuration, environ: Mapping[str, str]) -> int:
    command = target.command(config)
    layout = ps_layout.plan(config, environ)
    logs.prepare(config.log_dir)
    say.out(configuration.shown(config))
    with Guard() as guard, _signals() as events:
        logs.rotate(config.log_dir)
        with say.kept_in(logs.own_log(config.log_dir)):
            return ps_job.run(
                PsJob(layout=layout, command=command, config=config, guard=guard, events=events)
            )


def _say_what_is_odd(layout: Layout) -> None:
    config = layout.config
    if configuration.mode_is_a_guess(config):
        logger.warning("Not found distinct arguments. Default use collective mode")
    for warning in layout.share.warnings:
        logger.warning(warning)
    for note in layout.share.notes:
        logger.info(note)
    if not layout.share.gpu and layout.num_local > num_cores():
        logger.warning(
            "%d ranks share %d cores; more ranks than cores are slower than fewer",
            layout.num_local,
            num_cores(),
        )
    say.out(f"launch train in {'GPU' if layout.share.gpu else 'CPU'} mode")


def _run_with_restarts(layout: Layout, placed: Placed, prepare: Callable[[Placed], Attempt]) -> int:
    config = layout.config
    quick = 0
    for restart in range(config.max_restarts + 1):
        if restart:
            placed = place(layout, restart)
        _say_start(config, placed)
        attempt = prepare(placed)
        attempt.run()
        if attempt.failures and attempt.signal is None and restart < config.max_restarts:
            logs.rotate(config.log_dir, keep=logs.OWN_LOG)
            attempt.failures = [replace(death, log=f"{death.log}.1") for death in attempt.failures]
        if attempt.failures:
            said = report.text(attempt.failures, layout.size, attempt.ended_by_us)
            say.block(said, logs.own_log(config.log_dir))
        if attempt.signal is not None:
            logger.warning("%s: all ranks have been ended", signal.Signals(attempt.signal).name)
            return 128 + attempt.signal
        if not attempt.failures:
            logger.info("Local processes completed.")
            return 0
        quick = quick + 1 if attempt.first_failure - attempt.began < QUICK_S else 0
        if restart < config.max_restarts:
            _say_restart(config, attempt, restart + 1, quick)
    failed = sorted(d.rank.rank for d in attempt.failures)
    logger.error(
        "ABORT!!! Out of all %d trainers, the trainer process with rank=%s was aborted. Please check its log.",
        *(layout.size, failed),
    )
    return 1


def _say_start(config: Configuration, placed: Placed) -> None:
    logger.info(
        "Local start %d processes. First process distributed environment info (Only For Debug): %s",
        *(len(placed.ranks), table(placed.ranks[0])),
    )
    logger.info(
        "details about PADDLE_TRAINER_ENDPOINTS can be found in %s, and detail running logs maybe found in %s",
        logs.write_endpoints(config.log_dir, {"PADDLE_TRAINER_ENDPOINTS": placed.endpoints}),
        logs.process_log(config.log_dir, "rank", 0),
    )


def _say_restart(config: Configuration, attempt: Attempt, number: int, quick: int) -> None:
    cause = report.cause(attempt.failures)
    again = f"; it has failed within {QUICK_S:g} s of its start {quick} times in a row" if quick > 1 else ""
    logger.warning(
        "restart %d of %d: rank %d failed%s; its log is now %s; the script goes on from its newest checkpoint, "
        "if it writes any",
        *(number, config.max_restarts, cause.rank.rank, again, cause.log),
    )


@contextmanager
def _signals() -> Iterator[Events]:
    """Signals to the launcher become events; one that is ignored (nohup) stays ignored."""
    events: Events = queue.SimpleQueue()

    def note(number: int, frame: FrameType | None) -> None:
        events.put(Signalled(number))

    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    taken = {s: old for s, old in before.items() if old != signal.SIG_IGN}
    for number in taken:
        signal.signal(number, note)
    try:
        yield events
    finally:
        for number, old in taken.items():
            signal.signal(number, old)
