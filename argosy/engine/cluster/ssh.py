"""ssh: fleetrun starts the launcher of each host over a connection of its own, and ends it by closing that.

    fleetrun ──ssh a──▶ sh: read the environment from stdin ──▶ launcher of node 0 ── its output is the log
             ──ssh b──▶ …                                       launcher of node 1

A launcher ends when its standard input ends (--end_with_stdin): when fleetrun closes it, or the connection is lost.
With --grace, SIGTERM to fleetrun goes to node 0 as a line of its standard input, and fleetrun waits for the checkpoint.
"""

# SPDX-License-Identifier: Apache-2.0
import os
import queue
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from argosy.engine import open_files
from argosy.engine.cluster.engine import Engine, Outcome
from argosy.engine.cluster.host_jobs import after_setup, master, node_environ
from argosy.engine.cluster.job import ClusterJob, host_list
from argosy.engine.cluster.ssh_connection import STARTED, Event, SshConnection
from argosy.engine.errors import ConfigError

_OPTIONS = ("BatchMode=yes", "ConnectTimeout=20", "ServerAliveInterval=5", "ServerAliveCountMax=3")
"""Of every connection; --engine_args override them."""
_REPORT_S = 12.0
"""After a host has failed: how long the launchers of the others may take to report why, and to end."""
_END_S = 15.0
"""After the end of standard input: how long a launcher may take to end its processes."""
_CONFIG_S = 30.0
_FILES_PER_HOST = 4
"""Standard input, output and errors of ssh; one more while it is started."""


class Ssh(Engine):
    """One ssh per host, all children of this process."""

    name: ClassVar[str] = "ssh"
    settings: ClassVar[tuple[str, ...]] = ("hosts", "hostfile")
    is_guarded: ClassVar[bool] = True

    def __init__(self) -> None:
        self._connections: list[SshConnection] = []
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._failed: SshConnection | None = None
        """The host that failed first."""
        self._grace_s: float | None = None

    def plan(self, job: ClusterJob) -> str:
        names = ", ".join(sorted(node_environ(job)))
        commands = [shlex.join(words) for _, words in _commands(job)]
        return "\n".join([f"# over standard input to each host: {names}", *commands])

    def submit(self, job: ClusterJob) -> str:
        environ, self._grace_s = node_environ(job), job.config.grace_s
        commands = _commands(job)
        open_files.allow(
            _FILES_PER_HOST * len(commands), f"fleetrun has an ssh for each host: {len(commands)} hosts"
        )
        for number, (host, words) in enumerate(commands):
            self._connections.append(SshConnection(number, host, words, environ, self._events))
        return f"ssh-{os.getpid()}"

    def nodes(self, job_id: str) -> tuple[str, ...]:
        return tuple(connection.host for connection in self._connections)

    def logs(self, job_id: str) -> Iterator[str]:
        open_connections = {connection.number for connection in self._connections}
        until, steps = float("inf"), iter((self._close_all, self._kill_all))
        while open_connections:
            try:
                number, line = self._events.get(timeout=max(0.0, min(until - time.monotonic(), 3600.0)))
            except queue.Empty:
                if time.monotonic() >= until:
                    next(steps, self._kill_all)()
                    until = time.monotonic() + _END_S
                continue
            connection = self._connections[number]
            if line is not None:
                if connection.records(line):
                    yield line if number == 0 else f"[{connection.host}] {line}"
                continue
            open_connections.discard(number)
            if connection.finish() and self._failed is None:
                self._failed = connection
                until = time.monotonic() + (_REPORT_S if connection.has_started else 0.0)

    def wait(self, job_id: str) -> Outcome:
        codes = [connection.finish() for connection in self._connections]
        if self._failed is None:
            return Outcome(0, f"all {len(codes)} hosts completed")
        code = codes[self._failed.number]
        return Outcome(1 if code in (126, 127, 255) else code, self._failed.reason())

    def cancel(self, job_id: str) -> None:
        if self._grace_s is not None:
            self._connections[0].preempt()
            self._wait_for_all(self._grace_s + _END_S)
        self._close_all()
        self._wait_for_all(_END_S)
        self._kill_all()
        failed = (connection for connection in self._connections if connection.finish())
        self._failed = self._failed or next(failed, None)

    def _wait_for_all(self, timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        for connection in self._connections:
            connection.wait(until - time.monotonic())

    def _close_all(self) -> None:
        for connection in self._connections:
            connection.close()

    def _kill_all(self) -> None:
        for connection in self._connections:
            connection.kill()


def _commands(job: ClusterJob) -> list[tuple[str, list[str]]]:
    """The host and the ssh command of each node."""
    hosts = host_list(job.settings)
    if not hosts:
        raise ConfigError("--on=ssh without hosts; add --hosts=a,b or --hostfile=FILE")
    if shutil.which("ssh") is None:
        raise ConfigError("there is no program ssh; install an OpenSSH client")
    options = [word for option in _OPTIONS for word in ("-o", option)]
    endpoint = master(_address(hosts[0], job), job)
    job = replace(job, config=replace(job.config, end_with_stdin=True))
    return [
        (host, ["ssh", *job.arguments, *options, "-T", "-x", host, remote_command(job, node, endpoint)])
        for node, host in enumerate(hosts)
    ]


def remote_command(job: ClusterJob, node: int, endpoint: str) -> str:
    """What sshd gives to the user's shell: variables come over standard input, up to an empty line."""
    launcher = shlex.join(job.node_command(node_rank=node, master=endpoint))
    script = 'while IFS= read -r line && [ -n "$line" ]; do export "$line"; done; '
    script += f"cd {shlex.quote(job.directory)} && "
    script += after_setup(job, f"echo {STARTED} && exec {launcher}")
    return f"exec /bin/sh -c {shlex.quote(script)}"


def _address(host: str, job: ClusterJob) -> str:
    """The name or address of a host in ~/.ssh/config, without the user: what the other hosts connect to."""
    asked = ["ssh", *job.arguments, "-G", host]
    done = subprocess.run(
        asked, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_CONFIG_S, check=False
    )
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        if key == "hostname":
            return value
    raise ConfigError(
        f"`{shlex.join(asked)}` failed: {done.stderr.strip()}; correct --hosts, --engine_args or ~/.ssh/config"
    )
