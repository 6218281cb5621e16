"""The files of the job directory: where they are, how they are written and read (docs/reference/job-directory.md)."""

# SPDX-License-Identifier: Apache-2.0
import heapq
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from argosy.engine.errors import ConfigError
from argosy.engine.files import replacement

VERSION = 1
MAX_LINE = 1 << 20
"""A longer line is skipped: no writer of Argosy writes one."""
JOB, METRICS, EVENTS, REQUESTS = "job.json", "metrics", "events.jsonl", "requests.json"
_RECORDS = re.compile(r"(rank|server)(\d+)\.jsonl")
_READ_BYTES = 1 << 17
_FREQUENT, _KIND_BYTES = (b'"steps"', b'"values"'), 24
"""Kinds of records of which a job has many; a record begins with its kind."""


@dataclass(frozen=True)
class Record:
    """One line of a process's records, or of the launcher's events."""

    process: str
    """rank0, server1, or "" for an event of the launcher."""
    kind: str
    time: float
    fields: dict[str, Any]

    @property
    def number(self) -> int:
        """The rank, or the number of the server."""
        return int(self.process.removeprefix("rank").removeprefix("server"))

    def __getitem__(self, key: str) -> Any:
        return self.fields[key]

    def get(self, key: str, default: Any = None) -> Any:
        """A field, or the default where it is missing."""
        return self.fields.get(key, default)


def records_file(log_dir: str | Path, role: str, rank: int) -> Path:
    """The records of a process; a worker's are those of a rank."""
    return Path(log_dir) / METRICS / f"{'server' if role == 'server' else 'rank'}{rank}.jsonl"


def profile_file(log_dir: str | Path, rank: int) -> Path:
    """The last sampled step of a rank."""
    return Path(log_dir) / METRICS / f"rank{rank}.profile.json"


def write_json(path: Path, content: Any) -> None:
    """Replace a file atomically by this content; raises OSError."""
    with replacement(path) as temporary:
        temporary.write_text(json.dumps(content, allow_nan=False))


def read_json(path: Path) -> dict[str, Any] | None:
    """The object of a JSON file; None if there is no readable one."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


@dataclass
class _Tail:
    """The lines of a growing file that have not been read yet."""

    path: Path
    position: int = 0
    incomplete: bytes = b""

    def read(self) -> Iterator[bytes]:
        """The complete lines since the last call; from the start if the file was replaced by a shorter one."""
        try:
            with self.path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self.position:
                    self.position, self.incomplete = 0, b""
                file.seek(self.position)
                while data := file.read(_READ_BYTES):
                    self.position += len(data)
                    *lines, self.incomplete = (self.incomplete + data).split(b"\n")
                    yield from lines
                    if len(self.incomplete) > MAX_LINE:
                        self.incomplete = b"?"  # skipped as malformed at its newline
        except OSError:
            return  # not written yet, or removed with the directory


@dataclass
class JobDirectory:
    """Reads the files of one job, while they grow."""

    path: Path
    num_malformed: int = 0
    """Lines that are no records, for example after a full disk."""
    _tails: dict[str, _Tail] = field(default_factory=dict)

    @classmethod
    def find(cls, path: str | os.PathLike[str]) -> "JobDirectory":
        """The job in a log directory, or in its directory of node 0; raises ConfigError if there is none."""
        given = Path(path)
        for candidate in (given, given / "node-0"):
            if (candidate / JOB).exists() or (candidate / METRICS).is_dir():
                return cls(candidate)
        if not given.exists():
            raise ConfigError(
                f"{given} does not exist; give the log directory of a job (fleetrun --log_dir, default: log)"
            )
        raise ConfigError(
            f"{given} has no {JOB} and no {METRICS}/; give the log directory of a job of this version (fleetrun "
            "--log_dir, default: log)"
        )

    @property
    def metrics(self) -> Path:
        return self.path / METRICS

    def job(self) -> dict[str, Any]:
        """job.json; empty if it is missing or being replaced by something unreadable."""
        return read_json(self.path / JOB) or {}

    def profile(self, rank: int) -> dict[str, Any] | None:
        """The last sampled step of a rank, if there is one."""
        return read_json(profile_file(self.path, rank))

    def poll(self) -> list[Record]:
        """The new records of all processes and events since the last call, by time."""
        records = [record for name, process in self._files() for record in self._new(name, process)]
        return sorted(records, key=lambda record: record.time)

    def stream(self, thin: int = 1) -> Iterator[Record]:
        """The same as an iterator: for the records of a whole job, which need not fit into memory.

        `thin`: of the `steps` and `values` of a process, only every so-manieth record, and the last one.
        """
        return heapq.merge(
            *(self._new(*file, thin) for file in self._files()), key=lambda record: record.time
        )

    def size(self) -> int:
        """The bytes of all records."""
        return sum(_size(self.metrics / name) for name, _ in self._files())

    def _files(self) -> list[tuple[str, str]]:
        """The files of records and events, each with its process."""
        try:
            names = sorted(os.listdir(self.metrics))
        except OSError:
            return []
        files = [(name, match[1] + match[2]) for name in names if (match := _RECORDS.fullmatch(name))]
        return [*files, (EVENTS, "")]

    def _new(self, name: str, process: str, thin: int = 1) -> Iterator[Record]:
        tail = self._tails.setdefault(name, _Tail(self.metrics / name))
        for line in tail.read() if thin == 1 else _thinned(tail.read(), thin):
            try:
                fields = json.loads(line)
                yield Record(process, str(fields["kind"]), float(fields["time"]), fields)
            except (ValueError, KeyError, TypeError):
                self.num_malformed += 1


def _thinned(lines: Iterator[bytes], thin: int) -> Iterator[bytes]:
    """Of lines of the frequent kinds every so-manieth one, also the first after a start, and the last; all others."""
    counts = dict.fromkeys(_FREQUENT, 0)
    skipped: dict[bytes, bytes] = {}
    for line in lines:
        kind = next((kind for kind in _FREQUENT if kind in line[:_KIND_BYTES]), None)
        if kind is None:
            counts = dict.fromkeys(_FREQUENT, 0) if b'"start"' in line[:_KIND_BYTES] else counts
            yield line
            continue
        if counts[kind] % thin == 0:
            skipped.pop(kind, None)
            yield line
        else:
            skipped[kind] = line
        counts[kind] += 1
    yield from skipped.values()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
