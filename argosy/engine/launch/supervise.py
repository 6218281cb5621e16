"""Run a job on this host, with restarts; returns its exit code."""

# SPDX-License-Identifier: Apache-2.0
import socket
import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from argosy.engine import env, log
from argosy.engine.errors import ConfigError
from argosy.engine.launch import (
    configuration,
    console,
    entrypoint,
    failure_report,
    logs,
    ps_env,
    ps_job,
)
from argosy.engine.launch.attempt import Attempt
from argosy.engine.launch.configuration import Configuration, num_cores
from argosy.engine.launch.console import logger
from argosy.engine.launch.guard import run_guarded, signal_name
from argosy.engine.launch.hosts import describe_address
from argosy.engine.launch.job_record import JobRecord
from argosy.engine.launch.processes import Events
from argosy.engine.launch.ps_job import PsJob
from argosy.engine.launch.rank_env import CollectiveLayout, RankPlacement, place, plan, table
from argosy.engine.launch.signals import signals_as_events
from argosy.engine.launch.watch import watched
from argosy.engine.net import host_of

QUICK_S = 3.0
"""A job that fails this soon after its start is likely to fail again."""


def run(config: Configuration, num_gpus: int | None = None, environ: Mapping[str, str] | None = None) -> int:
    """Start the processes of this host and wait until they exit.

    Returns 0 (all succeeded), 1 (one failed), 128 + the number of the signal that terminated the job, or the requeue
    code (preempted). Raises ConfigError, before anything is started, if the configuration is invalid on this host.
    """
    if threading.current_thread() is not threading.main_thread():
        raise ConfigError(
            "a job can only be run from the main thread, which receives the signals; call it there"
        )
    environ = env.variables() if environ is None else environ
    if config.nodes is not None and config.nodes > 1:
        from argosy.engine.launch import node_job  # imports asyncio: not for a job on one host

        return node_job.run(config, environ, num_gpus)
    with console.quiet(config.quiet):
        log.warn_unknown_variables()
        if configuration.mode(config) == "ps":
            return _run_with_servers(config, environ)
        return _run_ranks(config, environ, num_gpus)


def _run_ranks(config: Configuration, environ: Mapping[str, str], num_gpus: int | None) -> int:
    command = entrypoint.command(config)
    layout = plan(config, environ, num_gpus)
    logs.prepare(config.log_dir)
    console.print_line(configuration.shown(config))
    return run_guarded(lambda: _run_collective(layout, command))


def _run_collective(layout: CollectiveLayout, command: list[str]) -> int:
    with signals_as_events(layout.config.end_with_stdin) as events:
        placement = place(layout, restart=0)  # may raise: before logs are rotated
        logs.rotate(layout.config.log_dir)
        with console.logged_to(logs.launcher_log(layout.config.log_dir)):
            _warn_about_layout(layout)
            record = JobRecord(layout.config.log_dir, layout.config, len(layout.addresses))
            return watched(
                layout.config,
                record,
                events,
                layout.environ,
                lambda: _run_with_restarts(layout, placement, command, events, record),
            )


def _run_with_servers(config: Configuration, environ: Mapping[str, str]) -> int:
    command = entrypoint.command(config)
    layout = ps_env.plan(config, environ)
    logs.prepare(config.log_dir)
    console.print_line(configuration.shown(config))

    def work() -> int:
        with signals_as_events(config.end_with_stdin) as events:
            logs.rotate(config.log_dir)
            with console.logged_to(logs.launcher_log(config.log_dir)):
                if layout.several_hosts:
                    here = sorted({host_of(endpoint) for endpoint in layout.local})
                    logger.info(
                        "the other hosts reach this one at %s", ", ".join(map(describe_address, here))
                    )
                record = JobRecord(config.log_dir, config, len(layout.hosts))
                job = PsJob(layout=layout, command=command, config=config, events=events, record=record)
                return watched(config, record, events, environ, lambda: ps_job.run(job))

    return run_guarded(work)


def _warn_about_layout(layout: CollectiveLayout) -> None:
    config = layout.config
    if configuration.mode_is_a_guess(config):
        logger.warning("Not found distinct arguments. Default use collective mode")
    for warning in layout.devices.warnings:
        logger.warning(warning)
    for note in layout.devices.notes:
        logger.info(note)
    if not layout.devices.gpu and layout.num_local > num_cores():
        logger.warning(
            "%d ranks share %d cores; more ranks than cores are slower than fewer",
            layout.num_local,
            num_cores(),
        )
    if len(layout.addresses) > 1:
        logger.info(
            "host %d of %d: the others reach it at %s%s",
            *(
                layout.host_index,
                len(layout.addresses),
                describe_address(layout.addresses[layout.host_index]),
            ),
            f"; collectives use interface {layout.interface}" if layout.interface else "",
        )
    console.print_line(f"launch train in {'GPU' if layout.devices.gpu else 'CPU'} mode")


def _run_with_restarts(
    layout: CollectiveLayout, placement: RankPlacement, command: list[str], events: Events, record: JobRecord
) -> int:
    config = layout.config
    quick = 0
    for restart in range(config.max_restarts + 1):
        if restart:
            placement = place(layout, restart)
        _log_start(config, placement)
        is_last = restart == config.max_restarts
        on_failure = partial(_report_failure, size=layout.size, is_last=is_last)
        attempt = Attempt(
            placement=placement,
            command=command,
            config=config,
            events=events,
            record=record,
            on_failure=on_failure,
            restart=restart,
            hosts=_hosts_of_ranks(layout),
        )
        attempt.run()
        if (code := attempt.grace.exit_code(attempt.signal, bool(attempt.failures))) is not None:
            return code
        if attempt.signal is not None:
            logger.warning("%s: all ranks were terminated", signal_name(attempt.signal))
            return 128 + attempt.signal
        if not attempt.failures:
            logger.info("Local processes completed.")
            return 0
        quick = quick + 1 if attempt.first_failure - attempt.began < QUICK_S else 0
        if not is_last:
            _log_restart(config, attempt, restart + 1, quick)
    if failure_report.is_reported(config, attempt.failures):
        return 1
    failed = {failure.spec.rank for failure in attempt.failures} | {attempt.culprit}
    logger.error(
        "ABORT!!! Out of all %d trainers, the trainer process with rank=%s was aborted. Please check its log.",
        *(layout.size, sorted(failed)),
    )
    return 1


def _hosts_of_ranks(layout: CollectiveLayout) -> tuple[str, ...]:
    """The host of every rank; on several hosts only the first launcher lists those of the others."""
    if len(layout.addresses) == 1:
        return (socket.gethostname(),) * layout.size
    if layout.host_index:
        return ()
    return tuple(address for address in layout.addresses for _ in range(layout.num_local))


def _report_failure(attempt: Attempt, size: int, is_last: bool) -> None:
    """Print the report, before the other ranks are terminated; before a restart, rotate the logs first."""
    config, others = attempt.config, attempt.others()
    cause = failure_report.cause(attempt.failures, others)
    attempt.culprit = cause.exit.spec.rank
    if failure_report.is_reported(config, attempt.failures):
        return
    is_restarted = not is_last and attempt.signal is None
    if is_restarted:
        logs.rotate(config.log_dir, restarts=True)
        cause = replace(cause, exit=replace(cause.exit, log=f"{cause.exit.log}.1"))
        attempt.failures = [replace(exit, log=f"{exit.log}.1") for exit in attempt.failures]
        others = [replace(exit, log=f"{exit.log}.1") for exit in others]
    text = failure_report.text(attempt.failures, size, attempt.still_running(), others)
    attempt.record.failed(text, cause, attempt.failures, is_end=not is_restarted)
    console.print_block(text, logs.launcher_log(config.log_dir))


def _log_start(config: Configuration, placement: RankPlacement) -> None:
    logger.info(
        "Local start %d processes. First process distributed environment info (Only For Debug): %s",
        *(len(placement.ranks), table(placement.ranks[0])),
    )
    logger.info(
        "details about PADDLE_TRAINER_ENDPOINTS are in %s, and the log of the first rank is in %s",
        logs.write_endpoints(config.log_dir, {"PADDLE_TRAINER_ENDPOINTS": placement.endpoints}),
        logs.process_log(config.log_dir, "rank", 0),
    )


def _log_restart(config: Configuration, attempt: Attempt, number: int, quick: int) -> None:
    log = logs.process_log(config.log_dir, "rank", attempt.local_rank(attempt.culprit))
    repeated = (
        f"; it has failed within {QUICK_S:g} s of its start {quick} times in a row" if quick > 1 else ""
    )
    attempt.record.restarted(
        f"restart {number} of {config.max_restarts}: rank {attempt.culprit} failed", number
    )
    logger.warning(
        "restart %d of %d: rank %d failed%s; its log is now %s.1; the script resumes from its newest checkpoint, "
        "if it writes any",
        *(number, config.max_restarts, attempt.culprit, repeated, log),
    )
