"""The write-ahead log and the snapshots of a server: after a kill nothing that it has acknowledged is lost.

    server_0/manifest.json           lists the current files; replaced atomically
             state.7.safetensors     the dense state of snapshot 7
             log.7, log.8            the changes since then; a snapshot begins a new log
             tables/…                segments of rows that have changed between snapshots

Recovery loads the state and replays the records of all logs with the same kernels: the result is bit-identical. A
snapshot begins a new log before it writes anything, and removes files only when the manifest that no longer lists them
is durable: if it fails at any point, the previous snapshot and the logs since then are complete.

All files have checksums.

Group commit: records of many threads are written to the log together.

    thread 1   add ──▶ ┐
    thread 2   add ──▶ ├ queue ──▶ the first thread that calls `flush` writes all queued records, and those that
    thread 3   add ──▶ ┘           are added meanwhile; then calls each one's `done`, which sends the reply

The format of a log:

    file      "argosy log 2" · record · record · …
    record    head, 32 bytes: magic, length of its header and of the body, checksum of the body, checksum of the head
              body: a header in msgpack, then the bytes of each tensor

A process that is killed while it writes leaves an incomplete record at the end of the file: it was never acknowledged,
and is truncated. Any other checksum mismatch is corruption: it is reported with its position, and the file is left as
it is.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import re
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import safetensors
import torch
from safetensors.torch import load, save
from torch import Tensor

from argosy.engine.checksum import checksum
from argosy.engine.disk import AppendFile, Buffer, Disk
from argosy.engine.errors import CorruptFileError, ProgramError
from argosy.engine.log import logger
from argosy.engine.ps.rpc.wire import decode_tensors, encode_tensors

PREAMBLE = b"argosy log 2\n\0\0\0"
_FIELDS = struct.Struct("<4sIQQ")
_HEAD_BYTES = _FIELDS.size + 8
_MAGIC = b"REC1"


class LogRecord(msgspec.Struct):
    """One entry of the log; its tensors follow it."""

    kind: str
    """step, push, push_rows, step_done, leave, rejoin, all_gather"""
    meta: dict[str, Any]
    tensors: list[tuple[str, list[int]]]
    sizes: list[int]


@dataclass(frozen=True)
class LogEntry:
    """A record that was read, and the position of its end."""

    record: LogRecord
    tensors: list[Tensor]
    end: int


def encode_record(kind: str, meta: dict[str, Any], tensors: Sequence[Tensor]) -> list[Buffer]:
    """The bytes of a record; large tensors are not copied, and must not change until it is written."""
    described, frames = encode_tensors(tensors)
    header = msgspec.msgpack.encode(LogRecord(kind, meta, described, [len(frame) for frame in frames]))
    length = len(header) + sum(map(len, frames))
    head = _FIELDS.pack(_MAGIC, len(header), length, checksum(header, *frames))
    return [head + checksum(head).to_bytes(8, "little"), header, *frames]


def read_log(disk: Disk, path: Path, is_last: bool) -> Iterator[LogEntry]:
    """The records of a file in their order.

    `is_last`: the last record may be incomplete, which ends the iteration; in an earlier log that is corruption.
    """
    data = disk.read(path)
    if len(data) < len(PREAMBLE) and is_last and PREAMBLE.startswith(bytes(data)):
        return
    if bytes(data[: len(PREAMBLE)]) != PREAMBLE:
        raise CorruptFileError(
            f"{path} is not a log of a parameter server: it does not start with {PREAMBLE!r}; restore it from a backup"
        )
    at, number = len(PREAMBLE), 0
    while at < len(data):
        entry = _read_record(path, data, at, number)
        if entry is None:
            if is_last:
                return
            raise _corrupt(path, at, number, "it is truncated, and another log follows")
        yield entry
        at, number = entry.end, number + 1


def _read_record(path: Path, data: memoryview, at: int, number: int) -> LogEntry | None:
    """The record at this position; None if the file ends before the record does."""
    start = at + _HEAD_BYTES
    if len(data) < start:
        return None
    magic, header_length, length, sum_of_body = _FIELDS.unpack_from(data, at)
    sum_of_head = int.from_bytes(data[start - 8 : start], "little")
    if magic != _MAGIC or sum_of_head != checksum(data[at : start - 8]):
        raise _corrupt(path, at, number, "the checksum of its head does not match")
    end = start + length
    if end > len(data):
        return None
    if checksum(data[start:end]) != sum_of_body:
        raise _corrupt(path, at, number, "the checksum of its body does not match")
    record = msgspec.msgpack.decode(data[start : start + header_length], type=LogRecord)
    frames, place = [], start + header_length
    for size in record.sizes:
        frames.append(bytearray(data[place : place + size]))
        place += size
    return LogEntry(record, decode_tensors(record.tensors, frames), end)


def _corrupt(path: Path, at: int, number: int, why: str) -> CorruptFileError:
    return CorruptFileError(
        f"{path} is corrupt: record {number + 1}, at byte {at}: {why}; the file is left as it is: restore it from a "
        "backup, or start from a saved model in another state directory"
    )


_MANIFEST = "manifest.json"
_FORMAT = "argosy.server-state.2"
_OURS = re.compile(r"(log|state)\.(\d+)(\.safetensors)?(\.tmp)?")


class WriteAheadLog:
    """The files of one server."""

    def __init__(self, directory: Path, disk: Disk | None = None, syncs: bool = False) -> None:
        """`syncs`: `append` syncs the records to the disk, so that they survive a power failure."""
        self.directory, self.tables = directory, directory / "tables"
        self.disk, self._syncs = disk or Disk(), syncs
        self.disk.make_folder(directory)
        self._log: AppendFile | None = None
        self.log_bytes = self.state_bytes = 0
        self._is_closed = False
        self.manifest: dict[str, Any] | None = self._read_manifest()
        self._number = max(self._numbers(), default=0)
        """The highest number of an existing log or state."""

    def _read_manifest(self) -> dict[str, Any] | None:
        path = self.directory / _MANIFEST
        if _MANIFEST not in self.disk.names(self.directory):
            return None
        try:
            manifest = json.loads(bytes(self.disk.read(path)))
            written = manifest.pop("checksum")
            if written != _checksum(manifest):
                raise ValueError("checksum mismatch")
            if manifest.get("format") != _FORMAT:
                raise ValueError(
                    f"its format is {manifest.get('format')!r}, and this version reads {_FORMAT!r}"
                )
            return dict(manifest)
        except (ValueError, KeyError, AttributeError) as e:
            raise CorruptFileError(
                f"{path} is corrupt: {e}; it is left as it is: restore the folder from a backup, or start in "
                "another one"
            ) from e

    def _numbers(self) -> list[int]:
        return [int(match[2]) for name in self.disk.names(self.directory) if (match := _OURS.fullmatch(name))]

    # --- reading --------------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """The dense state of the last snapshot."""
        assert self.manifest is not None, "there is no snapshot"
        path = self.directory / self.manifest["state"]
        try:
            data = self.disk.read(path)
            if checksum(data) != self.manifest["state_checksum"]:
                raise ValueError("checksum mismatch")
            return load(bytes(data))
        except (OSError, ValueError, safetensors.SafetensorError) as e:
            raise CorruptFileError(
                f"{path} is corrupt: {e}; it is left as it is: restore it from a backup, or start from a saved model "
                "in another state directory"
            ) from e

    def records(self) -> Iterator[tuple[LogRecord, list[Tensor]]]:
        """The records since the last snapshot; an incomplete record at the end of the last log is truncated."""
        assert self.manifest is not None, "there is no snapshot"
        existing = {
            number for number in self._numbers() if f"log.{number}" in self.disk.names(self.directory)
        }
        number = self.manifest["log"]
        wanted = range(number, max(existing, default=number) + 1)
        if missing := [log for log in wanted if log not in existing]:
            raise CorruptFileError(
                f"{self.directory / f'log.{missing[0]}'} is missing: the manifest lists it, or a later log exists; "
                "restore it from a backup"
            )
        while number in existing:
            path, is_last = self.directory / f"log.{number}", number + 1 not in existing
            end = len(PREAMBLE)
            for entry in read_log(self.disk, path, is_last):
                end = entry.end
                yield entry.record, entry.tensors
            if is_last:
                self._truncate_torn_record(path, end)
            number += 1

    def _truncate_torn_record(self, path: Path, end: int) -> None:
        file = self.disk.open_append(path)
        try:
            if file.size > end:
                logger.warning("%s: truncating %d bytes of an incomplete record", path, file.size - end)
                file.truncate(end)
            elif file.size < end:  # killed before the first bytes were written
                file.truncate(0)
                file.append([PREAMBLE])
            if self._syncs:
                # Records that the killed process wrote and did not sync are applied now, and acknowledged when they are
                # sent again; and no later log may follow one whose end a power failure could still change.
                file.sync()
                self.disk.sync_names(self.directory)
        finally:
            file.close()

    # --- writing --------------------------------------------------------------------------------------

    def append(self, parts: Sequence[Buffer]) -> None:
        """Write records; they survive a kill of this process once this returns."""
        assert self.manifest is not None, "the log starts with a snapshot"
        if self._is_closed:
            raise ProgramError(f"{self.directory}: the server has stopped; this record was not written")
        if self._log is None:
            self.begin_log()
        assert self._log is not None, "it was just opened"
        before = self._log.size
        self._log.append(parts)
        if self._syncs:
            self._log.sync()
        self.log_bytes += self._log.size - before

    def begin_log(self) -> int:
        """Start a new log; returns its number, which a snapshot of this moment records."""
        number = self._number + 1
        file = self.disk.open_append(self.directory / f"log.{number}")
        try:
            file.append([PREAMBLE])
            if self._syncs:
                file.sync()
                self.disk.sync_names(self.directory)
        except BaseException:
            file.close()
            self.disk.remove(self.directory / f"log.{number}")
            raise
        self._close_log()
        self._log, self._number, self.log_bytes = file, number, 0
        return number

    def snapshot(self, log: int, state: Mapping[str, Tensor], more: dict[str, Any]) -> None:
        """Write the state as of the start of this log; `more` goes into the manifest."""
        path = self.directory / f"state.{log}.safetensors"
        contiguous = {n: t.detach().contiguous() for n, t in state.items()}
        data = save(contiguous or {"empty": torch.empty(0)})
        self.disk.write(path, [data])
        manifest = {
            "format": _FORMAT,
            "log": log,
            "state": path.name,
            "state_checksum": checksum(data),
            **more,
        }
        text = json.dumps({**manifest, "checksum": _checksum(manifest)}, indent=1)
        self.disk.write(self.directory / _MANIFEST, [text.encode()])
        self.manifest, self.state_bytes = manifest, len(data)
        for name in self.disk.names(self.directory):
            match = _OURS.fullmatch(name)
            if match and (int(match[2]) < log or (match[1] == "state" and int(match[2]) != log)):
                self.disk.remove(self.directory / name)

    def close(self) -> None:
        self._is_closed = True
        self._close_log()

    def _close_log(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None


def _checksum(manifest: dict[str, Any]) -> int:
    return checksum(json.dumps(manifest, sort_keys=True).encode())


Done = Callable[[Exception | None], None]
"""Called when a record is written, or with the error if it could not be."""
_RETRY_S = 0.5
_BATCH_BYTES = 16 << 20
"""The largest batch, so that the first record in the queue does not wait for all."""


@dataclass(frozen=True)
class _Item:
    parts: Sequence[Buffer]
    size: int
    done: Done
    write: Callable[[Sequence[Buffer]], None] | None = None
    """Called instead of writing the parts."""


class GroupCommit:
    """A queue in front of a log."""

    def __init__(
        self,
        write: Callable[[Sequence[Buffer]], None],
        failed: Callable[[Exception], None] | None = None,
        retry_for_s: float = 30.0,
    ) -> None:
        """`write` writes all or raises OSError; retried for `retry_for_s`: space may become free on a full disk.

        `failed` is called once if a record could not be written: nothing is written after it, so that no record is
        missing between others.
        """
        self._write, self._failed, self._retry_for_s = write, failed, retry_for_s
        self._error: Exception | None = None
        self._queue: list[_Item] = []
        self._is_writing = False
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def add(self, parts: Sequence[Buffer], done: Done) -> None:
        """Append a record to the queue; `flush` writes it."""
        with self._lock:
            self._queue.append(_Item(parts, sum(map(len, parts)), done))

    def between(self, function: Callable[[], None], done: Done) -> None:
        """Call `function` after all records that are queued now, and before any later one."""
        with self._lock:
            self._queue.append(_Item((), 0, done, lambda _: function()))

    def after(self, done: Done) -> None:
        """Call `done` when all records that are queued now are written: at once if there are none."""
        with self._lock:
            is_idle = not (self._queue or self._is_writing)
            if not is_idle:
                self._queue.append(_Item((), 0, done))
        if is_idle:
            done(self._error)
        else:
            self.flush()

    def flush(self) -> None:
        """Write the queued records, unless another thread does."""
        while batch := self._next_batch():
            error = self._try(batch[0].write or self._write, [part for item in batch for part in item.parts])
            if error is not None and batch[0].write is None and self._error is None:
                self._error = error
                if self._failed is not None:
                    self._failed(error)
            with self._lock:
                self._is_writing = False  # what `done` calls may flush
            for item in batch:
                self._call(item.done, error)

    def stop(self) -> None:
        """Do not retry failed writes any more."""
        self._stopped.set()

    def _next_batch(self) -> list[_Item]:
        with self._lock:
            if self._is_writing:
                return []
            size = count = 0
            for item in self._queue:
                if item.write is not None or size > _BATCH_BYTES:
                    break
                size, count = size + item.size, count + 1
            count = count or len(self._queue[:1])
            batch, self._queue = self._queue[:count], self._queue[count:]
            self._is_writing = bool(batch)
            return batch

    @staticmethod
    def _call(done: Done, error: Exception | None) -> None:
        try:
            done(error)
        except Exception:  # of one request; the others still need their replies
            logger.exception("the callback after a write to the log failed")

    def _try(self, write: Callable[[Sequence[Buffer]], None], parts: Sequence[Buffer]) -> Exception | None:
        until, is_first = time.monotonic() + self._retry_for_s, True
        while True:
            if self._error is not None:
                return self._error
            try:
                write(parts)
            except OSError as e:
                if time.monotonic() > until or self._stopped.wait(_RETRY_S):
                    return e
                if is_first:
                    logger.error("the log cannot be written: %s; retrying for %g s", e, self._retry_for_s)
                    is_first = False
            except Exception as e:
                return e
            else:
                return None
