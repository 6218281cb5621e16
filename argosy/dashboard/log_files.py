"""Logs of a job: which there are, their last lines, and a search through the whole files. All answers are bounded."""

# SPDX-License-Identifier: Apache-2.0
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

TAIL_BYTES = 128 << 10
MAX_LINES = 1000
"""Of one answer."""
MAX_LINE = 2000
"""Characters of a line that are shown."""
MAX_SEARCHED = 512 << 20
"""Of a longer file the last part is searched; the reply has the size of the rest."""
MAX_MATCHES = 300
_NAMES = re.compile(r"(?:node\d{1,6}\.)?(?:(?:worker|server)(?:log|error)\.\d{1,6}|fleetrun\.log)")
_PROCESS = re.compile(r"(?:node(\d+)\.)?(worker|server)(log|error)\.(\d+)")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")
_ERROR = re.compile(
    r"\bTraceback \(|\b\w*(?:Error|Exception|Failed)\b(?=:| |$)|\b(?:ERROR|CRITICAL|FATAL|Killed|SIGKILL|SIGSEGV)\b"
)
_WARNING = re.compile(r"\b(?:WARN|WARNING|\w*Warning)\b")
_BLOCK = 1 << 20


@dataclass(frozen=True)
class LogLine:
    """A line as it is shown."""

    text: str
    level: int
    """0, 1 for a warning, 2 for an error."""


def is_log_name(name: str) -> bool:
    """True for the names that fleetrun gives to logs: no other file is ever read."""
    return _NAMES.fullmatch(name) is not None


def sizes(log_dir: Path) -> dict[str, int]:
    """The sizes of all logs; empty if the directory is gone."""
    try:
        with os.scandir(log_dir) as entries:
            logs = [e for e in entries if is_log_name(e.name) and e.is_file(follow_symlinks=False)]
            return {e.name: e.stat(follow_symlinks=False).st_size for e in logs}
    except OSError:
        return {}


def _open(path: Path) -> BinaryIO:
    """Open a log, and never what a link in its place points to."""
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW))


def order(names: list[str], failed: set[str]) -> list[str]:
    """The exceptions first, then the logs of failed processes, then the others by node and number."""

    def key(name: str) -> tuple[int, int, int, str]:
        match = _PROCESS.fullmatch(name)
        if match is None:
            return (3, 0, 0, name)
        kind = 0 if match[3] == "error" else 1 if name in failed else 2
        return (kind, int(match[1] or 0), int(match[4]), name)

    return sorted(names, key=key)


def tail(path: Path, after: int | None = None, before: int | None = None) -> dict[str, Any]:
    """The last complete lines; those that were added after a position; or those before one. Raises OSError.

    `start` and `end` are the positions of the lines in the file; `skipped` is true if lines between `after` and `start`
    are left out because there are too many of them.
    """
    with _open(path) as file:
        size = os.fstat(file.fileno()).st_size
        if after is not None and after > size:
            after = None  # another file by now
        end = size if before is None else max(0, min(before, size))
        start = max(end - TAIL_BYTES, after or 0)
        file.seek(start)
        data = file.read(end - start)
    skipped = start > (after or 0)
    if skipped:
        first = data.find(b"\n") + 1
        start, data = start + first, data[first:]
    complete = data.rfind(b"\n") + 1
    if not complete and len(data) >= TAIL_BYTES // 2:
        complete = len(data)  # a line without an end: a progress bar, for example
    data = data[:complete]
    lines = data.split(b"\n")[:-1] if data.endswith(b"\n") else data.split(b"\n")
    if len(lines) > MAX_LINES:
        start += sum(len(line) + 1 for line in lines[:-MAX_LINES])
        lines, skipped = lines[-MAX_LINES:], True
    shown = [parse(line) for line in lines]
    return {
        "lines": [[line.text, line.level] for line in shown],
        "start": start,
        "end": start + sum(len(line) + 1 for line in lines) if lines else start,
        "size": size,
        "skipped": bool(skipped and after is not None),
    }


def parse(data: bytes) -> LogLine:
    """A line without control sequences, shortened, with its level."""
    text = data[: 4 * MAX_LINE].decode("utf-8", "replace").rsplit("\r", 1)[-1] if data else ""
    if data.endswith(b"\r"):
        text = data[: 4 * MAX_LINE].decode("utf-8", "replace").rstrip("\r").rsplit("\r", 1)[-1]
    text = _ESCAPES.sub("", text)
    if len(text) > MAX_LINE:
        text = text[:MAX_LINE] + " …"
    level = 2 if _ERROR.search(text) else 1 if _WARNING.search(text) else 0
    return LogLine(text, level)


def search(log_dir: Path, names: list[str], text: str, errors_only: bool = False) -> dict[str, Any]:
    """The lines that contain the text (case does not matter), errors first; at most MAX_MATCHES of them."""
    wanted = text.casefold()
    by_level: dict[bool, list[list[Any]]] = {True: [], False: []}
    count, unsearched = 0, 0
    for name in names:
        try:
            skipped = max(0, (log_dir / name).stat().st_size - MAX_SEARCHED)
            unsearched += skipped
            for number, data in _lines(log_dir / name, skipped):
                if wanted not in data.decode("utf-8", "replace").casefold():
                    continue
                line = parse(data)
                if errors_only and line.level < 2:
                    continue
                count += 1
                matches = by_level[line.level == 2]
                if len(matches) < MAX_MATCHES:
                    matches.append([name, number, line.text, line.level])
        except OSError:
            continue  # removed meanwhile
    matches = (by_level[True] + by_level[False])[:MAX_MATCHES]
    return {"matches": matches, "count": count, "unsearched_bytes": unsearched}


def _lines(path: Path, skipped: int) -> Iterator[tuple[int, bytes]]:
    """Number and content of each line; a long line in pieces."""
    number, incomplete = 0, b""
    with _open(path) as file:
        file.seek(skipped)
        while data := file.read(_BLOCK):
            *lines, incomplete = (incomplete + data).split(b"\n")
            for line in lines:
                number += 1
                yield number, line
            if len(incomplete) > _BLOCK:
                yield number + 1, incomplete
                incomplete = b""
    if incomplete:
        yield number + 1, incomplete
