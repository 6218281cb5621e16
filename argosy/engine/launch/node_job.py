"""One node of a job of several launchers: its processes are started as `nodes.py` plans, and end as it decides.

    join ──▶ offer ──▶ plan ──▶ run this node's processes ──▶ result ──▶ verdict ──▶ exit code, or the next attempt

Node 0 shows the output of rank 0 and prints all reports; the others write to their directory log/node-I.
"""

# SPDX-License-Identifier: Apache-2.0
import os
import queue
import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from argosy.engine import log, net
from argosy.engine.errors import ConfigError
from argosy.engine.launch import (
    configuration,
    console,
    entrypoint,
    failure_report,
    logs,
    nodes,
    ports,
    ps_env,
    ps_job,
    rank_env,
)
from argosy.engine.launch.attempt import Attempt
from argosy.engine.launch.configuration import Configuration
from argosy.engine.launch.console import logger
from argosy.engine.launch.guard import run_guarded, signal_code, signal_name
from argosy.engine.launch.job_record import JobRecord
from argosy.engine.launch.node_messages import Joined, Offer, Plan, Result, Verdict
from argosy.engine.launch.processes import Events, SignalEvent
from argosy.engine.launch.ps_job import PsJob
from argosy.engine.launch.record_forwarding import RecordForwarder
from argosy.engine.launch.signals import signals_as_events
from argosy.engine.launch.watch import watched
from argosy.engine.version import VERSION

E = TypeVar("E", Joined, Plan, Verdict)

_SIGNALLED_S = 3.0
"""After a signal: how long to wait for node 0 to decide."""


class _Ended(Exception):
    """The job has ended on all nodes before this one has started its processes."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.text)
        self.verdict = verdict


def run(config: Configuration, environ: Mapping[str, str], num_gpus: int | None) -> int:
    """Run this node's part of the job; returns the exit code, the same on all nodes."""
    node = nodes.node_rank(config, environ)
    nodes.master(config, environ)  # may raise: before anything is started
    if node == 0:
        entrypoint.command(config)
    given = config
    config = replace(
        config, log_dir=os.path.join(config.log_dir, f"node-{node}"), quiet=config.quiet or node > 0
    )

    def work() -> int:
        with signals_as_events(config.end_with_stdin) as events:
            group = nodes.join(config, environ, events)
            forwarder = RecordForwarder(config.log_dir, group.forward) if node else None
            try:
                return _NodeJob(group, config, given, environ, events, num_gpus, forwarder).run()
            finally:
                if forwarder is not None:
                    forwarder.finish()
                group.close()

    with console.quiet(config.quiet):
        log.warn_unknown_variables()
        logs.prepare(config.log_dir)
        console.print_line(configuration.shown(config))
        return run_guarded(work)


class _NodeJob:
    def __init__(
        self,
        group: nodes.NodeGroup,
        config: Configuration,
        given: Configuration,
        environ: Mapping[str, str],
        events: Events,
        num_gpus: int | None,
        forwarder: RecordForwarder | None,
    ) -> None:
        self._group, self._config, self._environ = group, config, environ
        self._events, self._num_gpus, self._forwarder = events, num_gpus, forwarder
        self._has_reported = False
        self._record = JobRecord(config.log_dir, given, group.size)
        group.records.on_processes = self._record.update_node

    def run(self) -> int:
        try:
            logs.rotate(self._config.log_dir)
            with console.logged_to(logs.launcher_log(self._config.log_dir)):
                address = self._address()
                command = entrypoint.command(self._config)  # may raise: node 0 reports it
                if self._group.node:
                    return self._record.run(lambda: self._run_attempts(command, address))
                return watched(
                    self._config,
                    self._record,
                    self._events,
                    self._environ,
                    lambda: self._run_attempts(command, address),
                )
        except ConfigError as e:
            self._report(Result(self._group.node, "failed", 2, f"error: {e}"))
            raise
        except _Ended as ended:
            self._print(ended.verdict)
            return self._end(ended.verdict)

    def _run_attempts(self, command: list[str], address: str) -> int:
        number = 0
        try:
            while (verdict := self._attempt(command, address)).restarts:
                number += 1
                logs.rotate(self._config.log_dir, restarts=True)
                self._record.restarted(f"restart {number} of {self._config.max_restarts}", number)
        except _Ended as ended:
            verdict = ended.verdict
            self._print(verdict)
        return self._end(verdict)

    def _address(self) -> str:
        """Where the other nodes reach this one: the address of --interface, else that of the route to node 0."""
        address = self._next(Joined).address
        if self._config.interface is not None:
            address = net.address_of_interface(self._config.interface, net.family_of(address))
        logger.info(
            "node %d of %d: the others reach it at %s (interface %s)",
            *(self._group.node, self._group.size, address, net.interface_of(address)),
        )
        return address

    def _attempt(self, command: list[str], address: str) -> Verdict:
        is_ps = configuration.mode(self._config) == "ps"
        processes = self._servers_and_workers(command, address) if is_ps else self._ranks(command, address)
        processes.node, processes.on_verdict = self._group.node, self._print
        self._has_reported = False
        if isinstance(processes, PsJob):
            code = ps_job.run(processes)
        else:
            processes.run()
            code = processes.grace.exit_code(processes.signal, bool(processes.failures)) or 0
        if processes.grace.has_begun and code == self._config.requeued_with:
            self._report(Result(self._group.node, "preempted", code))
        elif processes.signal is not None:
            text = f"{signal_name(processes.signal)}: the job was ended"
            self._report(Result(self._group.node, "signal", signal_code(processes.signal), text))
        else:
            self._report(Result(self._group.node, "done", code))
        return processes.verdict or self._verdict()

    def _ranks(self, command: list[str], address: str) -> Attempt:
        layout = rank_env.plan(self._config, self._environ, self._num_gpus)
        free = ports.free_ports(address, layout.num_local + 1)
        store = ports.listen(address, 0) if self._group.node == 0 else None
        if store is not None:
            free[0] = store.getsockname()[1]
        plan = self._plan(address, free, layout.devices.per_rank)
        offers = plan.offers
        job = rank_env.JobEndpoints(
            tuple(rank_env.endpoints_at(o.address, o.ports[: len(o.devices)]) for o in offers),
            tuple(o.devices for o in offers),
            net.Endpoint(offers[0].address, offers[0].ports[-1]),
        )
        layout = replace(
            layout,
            host_index=self._group.node,
            addresses=tuple(offer.address for offer in offers),
            token=plan.token,
        )
        placement = rank_env.placement(layout, plan.attempt, job, store)
        logs.write_endpoints(self._config.log_dir, {"PADDLE_TRAINER_ENDPOINTS": placement.endpoints})
        logger.info(
            "node %d starts %d of %d ranks%s",
            *(
                self._group.node,
                layout.num_local,
                len(placement.endpoints),
                rank_env.table(placement.ranks[0]),
            ),
        )
        return Attempt(
            placement=placement,
            command=command,
            config=self._config,
            events=self._events,
            record=self._record,
            on_failure=self._report_ranks,
            restart=plan.attempt,
            hosts=() if self._group.node else tuple(o.host for o in offers for _ in o.devices),
        )

    def _servers_and_workers(self, command: list[str], address: str) -> PsJob:
        config = self._config
        assert config.server_num is not None, "several nodes and --servers raise"
        assert config.worker_num is not None, "several nodes and --workers raise"
        plan = self._plan(address, ports.stable_ports(address, _most(config, self._group.size)), ())
        servers, workers = spread(plan.offers, config.server_num, config.worker_num)
        local = frozenset(e for node, e in (*servers, *workers) if node == self._group.node)
        layout = ps_env.PsLayout(
            config,
            self._environ,
            tuple(endpoint for _, endpoint in servers),
            tuple(endpoint for _, endpoint in workers),
            local,
            plan.token,
            ps_env.http_endpoint(config, servers[0][1], several=True),
            ps_env.state_directory(config),
        )
        return PsJob(
            layout=layout,
            command=command,
            config=config,
            events=self._events,
            record=self._record,
            on_failure=self._report_servers,
        )

    def _plan(self, address: str, free: list[int], devices: tuple[tuple[str, ...], ...]) -> Plan:
        self._group.offer(
            Offer(
                self._group.node,
                host_name(self._environ),
                address,
                tuple(free),
                devices,
                configuration.mode(self._config),
                VERSION,
                self._config.node_role or "",
            )
        )
        return self._next(Plan)

    def _report_ranks(self, attempt: Attempt) -> None:
        others = attempt.others()
        cause = failure_report.cause(attempt.failures, others)
        attempt.culprit = cause.exit.spec.rank
        if failure_report.is_reported(self._config, attempt.failures):
            self._report(Result(self._group.node, "failed", 1))
            return
        size = len(attempt.placement.endpoints)
        text = failure_report.text(attempt.failures, size, attempt.still_running(), others)
        attempt.record.failed(text, cause, attempt.failures)
        self._report(Result(self._group.node, "failed", 1, text, is_cause=not cause.remote))

    def _report_servers(self, job: PsJob, text: str) -> None:
        cause = failure_report.cause(job.failures, job.others())
        self._report(Result(self._group.node, "failed", 1, text, is_cause=not cause.remote))

    def _report(self, result: Result) -> None:
        """Send the first result of an attempt, and write its text to this node's log."""
        if self._has_reported:
            return
        self._has_reported = True
        if self._forwarder is not None:
            self._forwarder.forward()
        self._group.report(result)
        if result.text and self._group.node > 0:
            console.append(result.text, logs.launcher_log(self._config.log_dir))

    def _verdict(self) -> Verdict:
        try:
            verdict = self._next(Verdict)
        except _Ended as ended:
            verdict = ended.verdict
        self._print(verdict)
        return verdict

    def _next(self, kind: type[E]) -> E:
        """Wait for this event; raises _Ended if the job ends instead."""
        until, signalled = float("inf"), Verdict(1, "")
        while True:
            try:
                event = self._events.get(timeout=min(1.0, max(0.0, until - time.monotonic())))
            except queue.Empty:
                if time.monotonic() >= until:
                    raise _Ended(signalled) from None
                continue
            if isinstance(event, SignalEvent):
                signalled = Verdict(
                    signal_code(event.number), f"{signal_name(event.number)}: the job was ended"
                )
                self._group.report(Result(self._group.node, "signal", signalled.code, signalled.text))
                until = time.monotonic() + _SIGNALLED_S
            elif isinstance(event, kind):
                return event
            elif isinstance(event, Verdict):
                raise _Ended(event)

    def _print(self, verdict: Verdict) -> None:
        """Node 0 prints the report; the others do so only if they have lost it."""
        if not verdict.text:
            return
        path = logs.launcher_log(self._config.log_dir)
        if verdict.code not in (0, *range(128, 256)) and not self._record.job["failure"]:
            self._record.failed(verdict.text, is_end=not verdict.restarts)
        if self._group.node == 0 or verdict.is_local:
            console.print_block(verdict.text, path)
        else:
            console.append(f"the job has ended: {verdict.text}", path)

    def _end(self, verdict: Verdict) -> int:
        self._group.wait_for_others()
        if verdict.code == 0:
            logger.info("all %d nodes completed.", self._group.size)
        elif self._group.node == 0 and verdict.code < 128 and not self._config.doctor:
            logger.error("ABORT!!! the job has ended with exit code %d on all nodes.", verdict.code)
        return verdict.code


def spread(
    offers: tuple[Offer, ...], num_servers: int, num_workers: int
) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """(node, endpoint) of each server and of each worker: evenly over the nodes of its role, in their order."""
    free = {offer.node: list(offer.ports) for offer in offers}

    def place(role: str, count: int) -> list[tuple[int, str]]:
        suitable = [offer for offer in offers if offer.role in ("", role)]
        chosen = [suitable[i * len(suitable) // count] for i in range(count)]
        return [(o.node, str(net.Endpoint(o.address, free[o.node].pop(0)))) for o in chosen]

    return place("server", num_servers), place("worker", num_workers)


def _most(config: Configuration, num_nodes: int) -> int:
    """The largest number of processes that `spread` may place on this node."""
    counts = {"server": config.server_num or 0, "worker": config.worker_num or 0}
    if config.node_role is not None:  # how many nodes have this role is not known yet
        return counts[config.node_role]
    return sum(-(-count // num_nodes) for count in counts.values())


def host_name(environ: Mapping[str, str]) -> str:
    """The name of this node for messages: Slurm's, or the host's."""
    return environ.get("SLURMD_NODENAME") or socket.gethostname()
