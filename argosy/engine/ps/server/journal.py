"""What a server keeps on disk, so that after a kill nothing that it has acknowledged is lost.

    server_0/manifest.json           names the files that count; replaced atomically
             state.40.safetensors    everything dense after step 40
             log.40                  the mean gradients of steps 41, 42, …; a record is complete or is not there
             tables/…                segments of rows that have changed between snapshots

Restart: the state, then the records, applied by the same kernels: bit for bit what was there. Records are written
without waiting for the disk: they survive the process, which is what is killed, not a power failure; a snapshot
waits for it.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from argosy.engine.errors import CorruptFileError, ProgramError
from argosy.engine.files import replacing, sync
from argosy.engine.log import logger
from argosy.engine.ps.rpc.wire import decode_tensors, encode_tensors

_MANIFEST = "manifest.json"
_HEAD = 16


class Record(msgspec.Struct):
    """One entry of the log; its tensors follow it."""

    kind: str
    """step, left, back, met"""
    meta: dict[str, Any]
    tensors: list[tuple[str, list[int]]]
    sizes: list[int]


class Journal:
    """The files of one server."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.tables = directory / "tables"
        self._log: BinaryIO | None = None
        self.log_bytes = self.state_bytes = 0
        self._is_closed = False
        self.manifest: dict[str, Any] | None = self._read_manifest()

    def _read_manifest(self) -> dict[str, Any] | None:
        path = self.directory / _MANIFEST
        if not path.exists():
            return None
        try:
            return dict(json.loads(path.read_text()))
        except ValueError as e:
            raise CorruptFileError(
                f"{path} is no manifest of a server's state: {e}; remove {self.directory} to begin anew"
            ) from e

    def state(self) -> dict[str, Tensor]:
        """Everything dense of the last snapshot."""
        assert self.manifest is not None, "there is no snapshot"
        return load_file(self.directory / self.manifest["state"])

    def records(self) -> Iterator[tuple[Record, list[Tensor]]]:
        """What was written since the last snapshot; what a kill has cut off is taken off the file."""
        assert self.manifest is not None, "there is no snapshot"
        path = self.directory / self.manifest["log"]
        if not path.exists():
            return
        good = 0
        with path.open("r+b") as file:
            while (found := _read(file)) is not None:
                good = file.tell()
                yield found
            rest = path.stat().st_size - good
            if rest:
                logger.warning("%s: %d bytes of a record that was never finished are dropped", path, rest)
                file.truncate(good)

    def append(self, kind: str, meta: dict[str, Any], tensors: list[Tensor]) -> None:
        """Write a record; it survives this process once this returns."""
        assert self.manifest is not None, "the log begins with a snapshot"
        if self._is_closed:
            raise ProgramError(f"{self.directory}: the server has ended before this could be written: {kind}")
        if self._log is None:
            self._log = (self.directory / self.manifest["log"]).open("ab", buffering=0)
        described, frames = encode_tensors(tensors)
        header = msgspec.msgpack.encode(Record(kind, meta, described, [len(f) for f in frames]))
        crc = zlib.crc32(header)
        for frame in frames:
            crc = zlib.crc32(frame, crc)
        head = len(header).to_bytes(8, "little") + crc.to_bytes(8, "little")
        good = self._log.seek(0, os.SEEK_END)
        try:
            for part in (head + header, *frames):
                _write_all(self._log, part)
                self.log_bytes += len(part)
        except OSError:
            self._log.truncate(good)  # what follows a half of a record would never be read
            raise

    def snapshot(self, step: int, state: Mapping[str, Tensor], more: dict[str, Any]) -> None:
        """Write everything anew, and begin an empty log; `more` goes into the manifest."""
        number = (self.manifest or {}).get("number", 0) + 1
        contiguous = {n: t.detach().contiguous().clone() for n, t in state.items()}
        path = self.directory / f"state.{step}.{number}.safetensors"
        save_file(contiguous or {"empty": torch.empty(0)}, path)
        sync(path)
        manifest = {"step": step, "number": number, "state": path.name, "log": f"log.{step}.{number}", **more}
        (self.directory / manifest["log"]).write_bytes(b"")
        with replacing(self.directory / _MANIFEST) as file:
            file.write(json.dumps(manifest, indent=1).encode())
        sync(self.directory)
        if self._log is not None:
            self._log.close()
            self._log = None
        self.manifest, self.log_bytes = manifest, 0
        self.state_bytes = sum(value.nbytes for value in contiguous.values())
        for old in self.directory.iterdir():
            if old.is_file() and old.name not in (_MANIFEST, manifest["state"], manifest["log"]):
                old.unlink()

    def close(self) -> None:
        self._is_closed = True
        if self._log is not None:
            self._log.close()


def _write_all(file: BinaryIO, data: Any) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def _read(file: BinaryIO) -> tuple[Record, list[Tensor]] | None:
    """The next record; None at the end, or if it is cut off or altered."""
    head = file.read(_HEAD)
    if len(head) < _HEAD:
        return None
    length, crc = int.from_bytes(head[:8], "little"), int.from_bytes(head[8:], "little")
    if length > 1 << 28:
        return None
    header = file.read(length)
    try:
        record = msgspec.msgpack.decode(header, type=Record)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    frames = []
    found = zlib.crc32(header)
    for size in record.sizes:
        frame = bytearray(file.read(size))
        if len(frame) < size:
            return None
        found = zlib.crc32(frame, found)
        frames.append(frame)
    return (record, decode_tensors(record.tensors, frames)) if found == crc else None
