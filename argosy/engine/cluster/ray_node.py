"""The supervising actor of one node: runs the node's launcher, and passes its output and its messages to the driver.

The actor is an ordinary class without Ray; `ray_attempt.py` makes an actor of it. If its process is killed, the kernel
sends SIGTERM to the launcher, which terminates its ranks.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import os
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from argosy.engine import env
from argosy.engine.cluster.ray_channel import VARIABLE, RankChannel

MAX_ITEMS = 10_000
"""The launcher's output blocks while the driver has not fetched this many lines."""
# PR_SET_PDEATHSIG (1) is kept by exec. Not a preexec_fn, which is unsafe in a process with threads: an actor has many.
_EXEC = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15); "
    "os.getppid() == int(sys.argv[1]) or sys.exit(1); os.execvp(sys.argv[2], sys.argv[2:])"
)


@dataclass(frozen=True)
class Item:
    """Something for the driver: a line of output, metrics of a rank, or the result of rank 0's function."""

    kind: str
    value: Any
    rank: int = -1


@dataclass(frozen=True)
class NodeInfo:
    """Where an actor runs."""

    address: str
    hostname: str
    ray_node: str
    """Ray's id of the node."""
    free_port: int


@dataclass(frozen=True)
class NodeTask:
    """What an actor starts."""

    command: tuple[str, ...]
    """Its first word is the Python of the nodes, or empty for the Python that runs the actor."""
    environ: Mapping[str, str]
    remove: tuple[str, ...]
    """Variables that Ray sets for the actor, and that the launcher must not inherit."""
    directory: str
    setup: tuple[str, ...] = ()


class NodeSupervisor:
    """One node of a job; its methods are called concurrently."""

    def __init__(self, token: str, function: bytes | None = None) -> None:
        self._function = function
        self._changed = threading.Condition()
        self._items: list[Item] = []
        self._acknowledged = 0
        self._process: subprocess.Popen[str] | None = None
        self._code: int | None = None
        self._channel = RankChannel(token, self._receive)

    def info(self) -> NodeInfo:
        """Where this actor runs, and a port for the launcher of node 0."""
        ray = import_module("ray")
        address = str(ray.util.get_node_ip_address())
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
            port = int(probe.getsockname()[1])
        ray_node = str(ray.get_runtime_context().get_node_id())
        return NodeInfo(address, socket.gethostname(), ray_node, port)

    def start(self, task: NodeTask) -> str | None:
        """Start the launcher; returns the reason if that is impossible."""
        directory = self._directory(task)
        if not os.path.isdir(directory):
            return (
                f"{socket.gethostname()} has no directory {directory}; use a shared file system, or "
                "ray job submit --working-dir"
            )
        environ = {name: v for name, v in env.variables().items() if name not in task.remove}
        environ.update(task.environ)
        environ[VARIABLE] = self._channel.name
        command = [task.command[0] or sys.executable, *task.command[1:]]
        if task.setup:
            command = ["/bin/sh", "-c", "\n".join([*task.setup, f"exec {shlex.join(command)}"])]
        arguments = [sys.executable, "-I", "-S", "-c", _EXEC, str(os.getpid()), *command]
        # The signal at the actor's death is bound to the thread that starts the process: this one waits for its end.
        started = threading.Event()
        threading.Thread(target=self._run, args=(arguments, environ, directory, started), daemon=True).start()
        started.wait()
        return None

    @staticmethod
    def _directory(task: NodeTask) -> str:
        """The job's directory; with `ray job submit --working-dir` the one into which Ray has copied the files."""
        copied = import_module("ray").get_runtime_context().runtime_env.get("working_dir")
        return os.getcwd() if copied else task.directory

    def _run(
        self, arguments: Sequence[str], environ: Mapping[str, str], directory: str, started: threading.Event
    ) -> None:
        process = subprocess.Popen(
            arguments,
            env=environ,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._process = process
        started.set()
        assert process.stdout is not None
        for line in process.stdout:
            self._add(Item("line", line.rstrip("\n")))
        code = process.wait()
        with self._changed:
            self._code = code if code >= 0 else 128 - code
            self._changed.notify_all()

    def _add(self, item: Item) -> None:
        with self._changed:
            self._changed.wait_for(lambda: len(self._items) < MAX_ITEMS)
            self._items.append(item)
            self._changed.notify_all()

    def _receive(self, header: dict[str, Any], payload: bytes) -> bytes:
        """A message of a rank."""
        if header["kind"] == "path":
            return json.dumps(sys.path).encode()
        if header["kind"] == "function":
            return self._function or b""
        value = payload if header["kind"] == "result" else json.loads(payload)
        self._add(Item(header["kind"], value, int(header["rank"])))
        return b""

    def poll(self, received: int, timeout_s: float) -> tuple[list[Item], int | None]:
        """What came after the first `received` items, and the launcher's exit code once it has ended.

        Waits for something new, at most `timeout_s`. An item is kept until the driver has confirmed it by the next
        call: a reply may be lost.
        """
        with self._changed:
            del self._items[: received - self._acknowledged]
            self._acknowledged = received
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._items or self._code is not None, timeout_s)
            return list(self._items), self._code

    def signal(self, number: int) -> None:
        """Send a signal to the launcher, unless it has ended."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
