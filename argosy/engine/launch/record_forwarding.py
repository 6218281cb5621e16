"""In a job of several nodes: what the processes of other nodes do, in the directory of node 0, which views show.

    node 1   log/node-1/metrics/rank2.jsonl          ──records──▶   log/node-0/metrics/rank2.jsonl
             log/node-1/metrics/rank2.profile.json   ──profile──▶   log/node-0/metrics/rank2.profile.json
             log/node-1/workerlog.0, workererror.0   ──log──────▶   log/node-0/node1.workerlog.0, the last part of it
             log/node-1/job.json                     ──processes▶   log/node-0/job.json: states, exit codes, the failure

All of them go over the channel of the launchers. What is sent per second and what is kept of a log is bounded.
"""

# SPDX-License-Identifier: Apache-2.0
import base64
import os
import re
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from argosy.engine.files import replacement
from argosy.engine.launch.console import logger
from argosy.engine.launch.logs import remote_log
from argosy.engine.metrics.job_directory import JOB, METRICS, read_json

PERIOD_S = 1.0
MAX_CHARACTERS = 200_000
"""The most text in one message, which JSON may make longer; see node_messages.MAX_BYTES."""
MAX_PARTS, MAX_PROFILE = 32, 64_000_000
"""Of a compressed profile, and the most bytes of one: a larger profile is not sent."""
LOG_BYTES = 64_000
"""The most bytes of logs that a node sends per second."""
KEPT_LOG_BYTES = 1_000_000
"""Of the log of a process of another node, node 0 keeps at least half of this."""
_REPEAT = 5
"""The states of the processes are sent again every so many seconds: node 0 may not have begun the attempt before."""
_NAME = re.compile(r"(?:rank|server)\d{1,7}\.(?:jsonl|profile\.json)")
_LOG = re.compile(r"(?:worker|server)(?:log|error)\.\d{1,6}|fleetrun\.log")
FORWARDED = ("records", "profile", "log", "processes")

Message = dict[str, Any]


class RecordForwarder:
    """A thread that sends what the processes of this node write."""

    def __init__(self, log_dir: str, send: Callable[[Message], None]) -> None:
        self._path, self._send = Path(log_dir), send
        self._sent: dict[str, tuple[int, int]] = {}
        """By name: the file (its inode, or its modification time), and how many of its bytes are sent."""
        self._processes: Message | None = None
        self._num_same = 0
        """How often it was the same."""
        self._left = 0
        """Bytes of logs that may still be sent in this second."""
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="records", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """The processes have exited: send the rest."""
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.wait(PERIOD_S):
            self.forward()
        self.forward()

    def forward(self) -> None:
        """Send what is new; before a result is reported, so that node 0 has it first."""
        with self._lock:
            for name in _names(self._path / METRICS, _NAME):
                self._guarded(self._lines if name.endswith(".jsonl") else self._profile, name)
            self._left = LOG_BYTES
            for name in _names(self._path, _LOG):
                self._guarded(self._log, name)
            self._forward_processes()

    def _guarded(self, forward: Callable[[str], None], name: str) -> None:
        try:
            forward(name)
        except OSError as e:
            logger.debug("cannot read %s: %s", name, e)

    def _lines(self, name: str) -> None:
        with (self._path / METRICS / name).open("rb") as file:
            status = os.fstat(file.fileno())
            inode, position = self._sent.get(name, (0, 0))
            if inode != status.st_ino or status.st_size < position:
                position = 0  # a new file, after a restart
            file.seek(position)
            while data := file.read(MAX_CHARACTERS):
                end = data.rfind(b"\n") + 1
                if not end:
                    return  # an incomplete line
                text = data[:end].decode(errors="replace")
                self._send({"type": "records", "name": name, "text": text})
                position += end
                self._sent[name] = status.st_ino, position
                file.seek(position)

    def _profile(self, name: str) -> None:
        path = self._path / METRICS / name
        changed = path.stat().st_mtime_ns, 0
        if changed == self._sent.get(name):
            return
        self._sent[name] = changed
        content = path.read_bytes()
        data = base64.b64encode(zlib.compress(content)).decode()
        parts = [data[i : i + MAX_CHARACTERS] for i in range(0, len(data), MAX_CHARACTERS)]
        if len(parts) > MAX_PARTS or len(content) > MAX_PROFILE:
            logger.debug("%s has %d bytes: it is not sent to node 0", path, len(content))
            return
        for number, part in enumerate(parts):
            self._send({"type": "profile", "name": name, "part": number, "parts": len(parts), "data": part})

    def _log(self, name: str) -> None:
        """Send the last complete lines, as far as this second's bytes reach."""
        with (self._path / name).open("rb") as file:
            status = os.fstat(file.fileno())
            inode, position = self._sent.get(name, (0, 0))
            if inode != status.st_ino or status.st_size < position:
                position = 0
            begin = max(position, status.st_size - self._left)
            file.seek(begin)
            data = file.read(status.st_size - begin)
        end = data.rfind(b"\n") + 1 if not self._ending.is_set() else len(data)
        first = data.find(b"\n") + 1 if begin > position else 0
        if end <= first:
            return
        skipped = begin + first - position
        note = f"[{skipped:,} bytes are left out here: see {name} on its host]\n" if skipped else ""
        text = note + data[first:end].decode(errors="replace")
        self._send({"type": "log", "name": name, "text": text, "is_new": position == 0})
        self._left -= end - first
        self._sent[name] = status.st_ino, begin + end

    def _forward_processes(self) -> None:
        job = read_json(self._path / JOB)
        if job is None:
            return
        local = [process for process in job.get("processes", []) if process.get("pid") is not None]
        message = {"type": "processes", "processes": local, "failure": job.get("failure")}
        self._num_same = self._num_same + 1 if message == self._processes else 0
        if self._num_same % _REPEAT == 0:
            self._processes = message
            self._send(message)


def _names(directory: Path, pattern: re.Pattern[str]) -> list[str]:
    try:
        return sorted(filter(pattern.fullmatch, os.listdir(directory)))
    except OSError:
        return []  # no process has written yet


class RecordFiles:
    """Node 0: writes what the other nodes send to its directory."""

    def __init__(self, log_dir: str) -> None:
        self._path = Path(log_dir)
        self._is_writable = True
        self._parts: dict[tuple[int, str], list[str]] = {}
        """Of profiles that are not complete."""
        self.on_processes: Callable[[int, list[Any], Any], None] = lambda node, processes, failure: None
        """Gets the number of a node, its processes and its failure, as in its job.json."""

    def add(self, node: int, message: Message) -> None:
        """Handle a message of a node; raises ValueError if it is malformed."""
        kind, name = message.get("type"), message.get("name", "")
        if kind == "processes":
            self._add_processes(node, message)
            return
        pattern = _LOG if kind == "log" else _NAME
        if not isinstance(name, str) or not pattern.fullmatch(name):
            raise ValueError(f"{name!r:.80} is not a file of records, or a log")
        if not self._is_writable:
            return
        try:
            (self._path / METRICS).mkdir(parents=True, exist_ok=True)
            if kind == "records":
                self._append(self._path / METRICS / name, _text(message))
            elif kind == "profile":
                self._add_profile(node, name, message)
            else:
                self._add_log(self._path / remote_log(node, name), message)
        except OSError as e:
            self._is_writable = False
            logger.warning(
                "cannot write %s (%s); views show only the ranks of node 0", self._path, e.strerror
            )

    def _add_processes(self, node: int, message: Message) -> None:
        processes = message.get("processes")
        if not isinstance(processes, list):
            raise ValueError("processes is not a list")
        self.on_processes(node, processes, message.get("failure"))

    def _append(self, path: Path, text: str) -> None:
        with path.open("a") as file:
            file.write(text)

    def _add_profile(self, node: int, name: str, message: Message) -> None:
        part, parts, data = message.get("part"), message.get("parts"), message.get("data")
        if not isinstance(part, int) or not isinstance(parts, int) or not isinstance(data, str):
            raise ValueError("a part of a profile has part, parts and data")
        known = self._parts.setdefault((node, name), []) if part else []
        if part != len(known) or not 0 <= part < parts <= MAX_PARTS:
            raise ValueError(f"part {part} of {parts} of a profile, after {len(known)} parts")
        self._parts[node, name] = [*known, data]
        if part + 1 < parts:
            return
        try:
            packed = base64.b64decode("".join(self._parts.pop((node, name))), validate=True)
            content = zlib.decompressobj().decompress(packed, MAX_PROFILE)
        except zlib.error as e:
            raise ValueError(f"the profile {name} cannot be decompressed: {e}") from e
        with replacement(self._path / METRICS / name) as temporary:
            temporary.write_bytes(content)

    def _add_log(self, path: Path, message: Message) -> None:
        """Append; of a long log, only the last part is kept."""
        if message.get("is_new"):
            path.unlink(missing_ok=True)
        self._append(path, _text(message))
        if (size := path.stat().st_size) <= KEPT_LOG_BYTES:
            return
        with path.open("rb") as file:
            file.seek(size - KEPT_LOG_BYTES // 2)
            rest = file.read().partition(b"\n")[2]
        with replacement(path) as temporary:
            temporary.write_bytes(b"[earlier lines are in the log on its host]\n" + rest)


def _text(message: Message) -> str:
    text = message.get("text")
    if not isinstance(text, str):
        raise ValueError(f"the text of {message.get('name')!r:.80} is not a string")
    return text
