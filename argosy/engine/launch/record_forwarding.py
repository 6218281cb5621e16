"""In a job of several nodes: the records of all ranks in the directory of node 0, so that one view shows the whole job.

node 1   log/node-1/metrics/rank2.jsonl ──▶ RecordForwarder ──▶ channel of the launchers ──▶ RecordFiles
node 0                                                                    log/node-0/metrics/rank2.jsonl
"""

# SPDX-License-Identifier: Apache-2.0
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

from argosy.engine.files import replacement
from argosy.engine.launch.console import logger
from argosy.engine.metrics.job_directory import METRICS

PERIOD_S = 1.0
MAX_CHARACTERS = 200_000
"""The most text in one message, which JSON may make longer; see node_messages.MAX_BYTES."""
_NAME = re.compile(r"(?:rank|server)\d{1,7}\.(?:jsonl|profile\.json)")


class RecordForwarder:
    """A thread that sends what the processes of this node append to their records."""

    def __init__(self, log_dir: str, send: Callable[[str, str], None]) -> None:
        """`send(name, text)`: lines to be appended, or a whole profile."""
        self._directory, self._send = Path(log_dir) / METRICS, send
        self._sent: dict[str, int] = {}
        """By name: the bytes of the records that are sent, or the modification time of the profile."""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="records", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """The processes have exited: send the rest."""
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.wait(PERIOD_S):
            self._forward()
        self._forward()

    def _forward(self) -> None:
        try:
            names = sorted(filter(_NAME.fullmatch, os.listdir(self._directory)))
        except OSError:
            return  # no process has written yet
        for name in names:
            try:
                if name.endswith(".jsonl"):
                    self._forward_lines(name)
                else:
                    self._forward_profile(name)
            except OSError as e:
                logger.debug("cannot read %s: %s", name, e)

    def _forward_lines(self, name: str) -> None:
        with (self._directory / name).open("rb") as file:
            if os.fstat(file.fileno()).st_size < self._sent.get(name, 0):
                self._sent[name] = 0  # a new file, after a restart
            file.seek(self._sent.get(name, 0))
            while data := file.read(MAX_CHARACTERS):
                end = data.rfind(b"\n") + 1
                if not end:
                    return  # an incomplete line
                self._send(name, data[:end].decode(errors="replace"))
                self._sent[name] = self._sent.get(name, 0) + end
                file.seek(self._sent[name])

    def _forward_profile(self, name: str) -> None:
        path = self._directory / name
        status = path.stat()
        if status.st_mtime_ns != self._sent.get(name) and status.st_size <= MAX_CHARACTERS:
            self._send(name, path.read_text())
            self._sent[name] = status.st_mtime_ns


class RecordFiles:
    """Node 0: writes what the other nodes send to its directory."""

    def __init__(self, log_dir: str) -> None:
        self._directory = Path(log_dir) / METRICS
        self._is_writable = True

    def add(self, name: str, text: str) -> None:
        """Append lines to records, or replace a profile; raises ValueError for any other name."""
        if not isinstance(name, str) or not isinstance(text, str) or not _NAME.fullmatch(name):
            raise ValueError(f"{name!r:.80} is not a file of records")
        if not self._is_writable:
            return
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            if name.endswith(".jsonl"):
                with (self._directory / name).open("a") as file:
                    file.write(text)
            else:
                with replacement(self._directory / name) as temporary:
                    temporary.write_text(text)
        except OSError as e:
            self._is_writable = False
            logger.warning(
                "cannot write %s (%s); views show only the ranks of node 0", self._directory, e.strerror
            )
