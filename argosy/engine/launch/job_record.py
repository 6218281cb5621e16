"""The launcher's part of the job directory: job.json and the events (docs/reference/job-directory.md).

A job does not fail because these files cannot be written: the launcher warns once and continues.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import os
import platform
import shlex
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import metadata
from pathlib import Path
from typing import Any

from argosy.engine.launch import configuration, logs
from argosy.engine.launch.configuration import Configuration
from argosy.engine.launch.console import logger
from argosy.engine.launch.failure_report import Cause, ProcessExit
from argosy.engine.launch.rank_env import ProcessSpec
from argosy.engine.metrics.job_directory import EVENTS, JOB, METRICS, VERSION, write_json
from argosy.engine.version import VERSION as ARGOSY_VERSION

_STATES = ("running", "done", "failed", "terminated")
_SENT = ("local_rank", "pid", "exit")
"""Of the processes of another node, beside the state and the log."""


@dataclass(frozen=True)
class Place:
    """Where a process of the job runs."""

    role: str
    rank: int
    host: str


class JobRecord:
    """What is known about a running job; each change replaces job.json. Used by several threads."""

    def __init__(self, log_dir: str, given: Configuration, num_nodes: int = 1) -> None:
        """`given`: the options of the user. `num_nodes`: launchers, or hosts of --ips."""
        self._path = Path(log_dir)
        self._requeue_code = None if given.grace_s is None else given.requeued_with
        self._lock = threading.Lock()
        self._has_warned = False
        self._processes: dict[tuple[str, int], dict[str, Any]] = {}
        self._remote_failures: dict[int, dict[str, Any]] = {}
        """By node: what its launcher has recorded."""
        self.job: dict[str, Any] = {
            "version": VERSION,
            "state": "running",
            "mode": configuration.mode(given),
            "command": shlex.join(["fleetrun", *configuration.words(given)]),
            "script": given.script,
            "options": options(given),
            "host": socket.gethostname(),
            "nodes": num_nodes,
            "started": time.time(),
            "ended": None,
            "exit_code": None,
            "restart": 0,
            "launcher_pid": os.getpid(),
            "versions": versions(),
            "dashboard": None,
            "failure": None,
        }

    def start(self, places: Iterable[Place], restart: int = 0) -> None:
        """An attempt begins: all processes of the job, also those that other launchers start."""
        with self._lock:
            self.job |= {"state": "running", "restart": restart, "failure": None}
            self._remote_failures.clear()
            self._processes = {
                (place.role, place.rank): _process(place.role, place.rank, place.host) for place in places
            }
        try:
            (self._path / METRICS).mkdir(parents=True, exist_ok=True)
        except OSError as e:
            self._warn(e)
        self.write()

    def content(self) -> dict[str, Any]:
        """A copy of what job.json has."""
        with self._lock:
            return self._content()

    def _content(self) -> dict[str, Any]:
        return self.job | {"processes": [dict(process) for process in self._processes.values()]}

    def set(self, **values: Any) -> None:
        """Replace keys of job.json, such as `dashboard`."""
        with self._lock:
            self.job |= values
        self.write()

    def started(self, spec: ProcessSpec, pid: int, log: str) -> None:
        """A process of this host runs; not written yet, since others are started, too."""
        with self._lock:
            self._of(spec).update(
                state="running", exit=None, local_rank=spec.local_rank, pid=pid, log=os.path.basename(log)
            )

    def exited(self, spec: ProcessSpec, code: int, is_terminated: bool) -> None:
        """A process has exited; `is_terminated`: the launcher has ended it."""
        with self._lock:
            process = self._of(spec)
            if process["state"] == "running":  # it may have failed before, by its error file
                ended = "terminated" if is_terminated else "failed"
                process.update(state=ended if code else "done", exit=code)
        self.write()
        if not is_terminated:
            self.event("exit", f"{spec.name} ended with {_exit_text(code)}", spec, exit=code)

    def failed(
        self, text: str, cause: Cause | None = None, failures: Sequence[ProcessExit] = (), is_end: bool = True
    ) -> None:
        """Processes have failed. `cause` is None if it is on another host; `is_end`: nothing is restarted for that."""
        failure = _failure(text, cause, failures)
        with self._lock:
            if cause is None:
                failure |= self._remote_details(text)
            for exit in failures:
                self._of(exit.spec).update(state="failed", exit=exit.code)
            if is_end:
                self.job["failure"] = failure
        self.write()
        self.event("failure", text.partition("\n")[0], cause.exit.spec if cause else None)

    def update_node(self, node: int, processes: Sequence[Any], failure: Any) -> None:
        """The processes of another node, and its failure, as in its job.json; what is malformed is left out."""
        exits = []
        with self._lock:
            for sent in processes:
                if not isinstance(sent, dict) or sent.get("state") not in _STATES:
                    continue
                known = self._processes.get((sent.get("role", ""), sent.get("rank", -1)))
                if known is None or (known["pid"] is not None and known.get("node") != node):
                    continue
                before = known["state"]
                known |= {key: value for key in _SENT if isinstance(value := sent.get(key), int | None)}
                known |= {"node": node, "state": sent["state"]}
                if isinstance(host := sent.get("host"), str):
                    known["host"] = host  # its name: before, it may be an address
                if isinstance(log := sent.get("log"), str):
                    known["log"] = logs.remote_log(node, os.path.basename(log))
                if before == "running" and known["state"] in ("done", "failed"):
                    exits.append(dict(known))
            if isinstance(failure, dict) and isinstance(failure.get("text"), str):
                self._remote_failures[node] = failure
                if self.job["failure"] is not None and self.job["failure"]["process"] is None:
                    self.job["failure"] |= self._remote_details(self.job["failure"]["text"])
        self.write()
        for known in exits:
            who = {"role": known["role"], "rank": known["rank"], "exit": known["exit"]}
            text = f"{known['role']} {known['rank']} ended with {_exit_text(known['exit'] or 0)}"
            self.append({"time": time.time(), "kind": "exit", "text": text, **who})

    def _remote_details(self, text: str) -> dict[str, Any]:
        """What the node knows whose report is the cause, that is, the first in the text; empty if there is none."""
        places = {node: text.find(failure["text"]) for node, failure in self._remote_failures.items()}
        node = min((n for n, place in places.items() if place >= 0), key=lambda n: places[n], default=None)
        if node is None:
            return {}
        failure = self._remote_failures[node]
        details = {key: failure.get(key) for key in ("process", "type", "what", "where", "hint", "waiting")}
        log = failure.get("log")
        return details | {
            "log": logs.remote_log(node, os.path.basename(log)) if isinstance(log, str) else None
        }

    def restarted(self, text: str, number: int, spec: ProcessSpec | None = None) -> None:
        """All processes, or this one, are started again, for the `number`-th time."""
        self.set(restart=number)
        self.event("restart", text, spec)

    def run(self, work: Callable[[], int]) -> int:
        """Run the job; records its end with the exit code that `work` returns."""
        code = 2  # of a ConfigError
        try:
            code = work()
        finally:
            self.end(code)
        return code

    def end(self, code: int) -> None:
        """The job has ended with this exit code."""
        states = {0: "completed", self._requeue_code: "preempted"}
        state = states.get(code, "terminated" if code >= 128 else "failed")
        with self._lock:
            self.job |= {"state": state, "exit_code": code, "ended": time.time()}
            for process in self._processes.values():
                if process["state"] == "running":  # of another host, which was lost
                    process["state"] = "done" if code == 0 else "terminated"
        self.write()

    def event(self, kind: str, text: str, spec: ProcessSpec | None = None, **values: Any) -> None:
        """Append an event."""
        who = {} if spec is None else {"role": spec.role, "rank": spec.rank}
        self.append({"time": time.time(), "kind": kind, "text": text, **who, **values})

    def append(self, event: Mapping[str, Any]) -> None:
        """Append an event that has its time already."""
        line = json.dumps(event).encode() + b"\n"
        with self._lock:
            try:
                with (self._path / METRICS / EVENTS).open("ab", buffering=0) as file:
                    file.write(line)
            except OSError as e:
                self._warn(e)

    def write(self) -> None:
        """Replace job.json."""
        with self._lock:
            try:
                write_json(self._path / JOB, self._content())
            except OSError as e:
                self._warn(e)

    def _of(self, spec: ProcessSpec) -> dict[str, Any]:
        key = (spec.role, spec.rank)
        return self._processes.setdefault(key, _process(spec.role, spec.rank, self.job["host"]))

    def _warn(self, error: OSError) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "cannot write to %s (%s); the job continues, but its views and its report may be incomplete",
                *(self._path, error.strerror),
            )


def _process(role: str, rank: int, host: str) -> dict[str, Any]:
    unknown = {"local_rank": None, "pid": None, "log": None}
    return {"role": role, "rank": rank, "host": host, **unknown, "state": "running", "exit": None}


def _failure(text: str, cause: Cause | None, failures: Sequence[ProcessExit]) -> dict[str, Any]:
    if cause is None:
        details = dict.fromkeys(("process", "type", "what", "where", "hint", "log"))
        return {"text": text, **details, "waiting": []}
    exit = cause.exit
    waiting = [
        f for f in (*failures, *([cause.victim] if cause.victim else [])) if f is not exit and f.blamed
    ]
    return {
        "text": text,
        "process": exit.spec.name,
        "type": exit.error.type if exit.error else None,
        "what": exit.error.what if exit.error else exit.described,
        "where": exit.error.where if exit.error else None,
        "hint": exit.hint or None,
        "log": os.path.basename(exit.log),
        "waiting": [
            {"process": name, "what": what}
            for name, what in {f.spec.name: f.error.what for f in waiting if f.error}.items()
        ],
    }


def _exit_text(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    return signal.Signals(-code).name if -code in list(signal.Signals) else f"signal {-code}"


def options(config: Configuration) -> dict[str, Any]:
    """The options of fleetrun that differ from their defaults."""
    given = {f.name: getattr(config, f.name) for f in fields(config) if getattr(config, f.name) != f.default}
    return {name: value for name, value in given.items() if name not in ("script", "script_args", "module")}


def versions() -> dict[str, str]:
    """Argosy, torch and Python; nothing is imported for that."""
    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = ""
    return {"argosy": ARGOSY_VERSION, "torch": torch, "python": platform.python_version()}
