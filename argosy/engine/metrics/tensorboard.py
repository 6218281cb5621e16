"""Write the values of a job as scalars for TensorBoard (fleetrun --tensorboard DIR): one run, one file.

A file of events is a sequence of   length (8 bytes)  checksum of it (4)  Event (length bytes)  checksum of it (4)
in little-endian order; the checksums are masked CRC-32C. An Event is a protocol buffer of TensorFlow's event.proto.
"""

# SPDX-License-Identifier: Apache-2.0
import math
import os
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from argosy.engine.errors import ConfigError
from argosy.engine.metrics.job_directory import Record
from argosy.engine.metrics.job_view import JobView
from argosy.engine.metrics.reducing import ReducedValues

_CASTAGNOLI = 0x82F63B78
_MASK = 0xA282EAD8
FLUSH_S = 5.0


def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (_CASTAGNOLI if byte & 1 else 0)  # noqa: PLW2901
        table.append(byte)
    return tuple(table)


_TABLE = _table()


def masked_crc32c(data: bytes) -> int:
    """The checksum of a file of events."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + _MASK) & 0xFFFFFFFF


def _event_type() -> type[Any]:
    """The part of event.proto that scalars need; in a pool of its own, beside that of TensorBoard."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="argosy_event.proto", package="argosy", syntax="proto2")

    def add(parent: Any, name: str, fields: Sequence[tuple[str, int, int, str]]) -> None:
        message = parent.add(name=name)
        for field_name, number, kind, type_name in fields:
            label = field.LABEL_REPEATED if field_name == "value" else field.LABEL_OPTIONAL
            added = message.field.add(name=field_name, number=number, type=kind, label=label)
            if type_name:
                added.type_name = type_name

    scalar = (("tag", 1, field.TYPE_STRING, ""), ("simple_value", 2, field.TYPE_FLOAT, ""))
    add(file.message_type, "Value", scalar)
    add(file.message_type, "Summary", (("value", 1, field.TYPE_MESSAGE, ".argosy.Value"),))
    event = (
        ("wall_time", 1, field.TYPE_DOUBLE, ""),
        ("step", 2, field.TYPE_INT64, ""),
        ("file_version", 3, field.TYPE_STRING, ""),
        ("summary", 5, field.TYPE_MESSAGE, ".argosy.Summary"),
    )
    add(file.message_type, "Event", event)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    event_class: type[Any] = message_factory.GetMessageClass(pool.FindMessageTypeByName("argosy.Event"))
    return event_class


class EventFile:
    """A file of events in a directory, which is created."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}.0"
        self._type = _event_type()
        self._file = (directory / name).open("xb")
        self._write(self._type(wall_time=time.time(), file_version="brain.Event:2"))
        self.flush()

    def scalars(self, step: int, wall_time: float, values: dict[str, float]) -> None:
        """Append values of a step."""
        value = [{"tag": tag, "simple_value": _float32(number)} for tag, number in values.items()]
        self._write(self._type(wall_time=wall_time, step=step, summary={"value": value}))

    def _write(self, event: Any) -> None:
        data = event.SerializeToString()
        length = struct.pack("<Q", len(data))
        checksums = (struct.pack("<I", masked_crc32c(part)) for part in (length, data))
        self._file.write(length + next(checksums) + data + next(checksums))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _float32(number: float) -> float:
    """The number, or an infinity if it is too large for a float of 32 bits."""
    try:
        struct.pack("<f", number)
    except OverflowError:
        return math.copysign(math.inf, number)
    return number


class TensorBoardSink:
    """Writes watched values under their names, and the speed of the job as speed/step_ms and so on."""

    def __init__(self, directory: str) -> None:
        try:
            self._file = EventFile(Path(directory))
        except OSError as e:
            raise ConfigError(
                f"--tensorboard={directory}: cannot write there ({e.strerror}); choose another directory"
            ) from e
        self._values = ReducedValues()
        self._step = 0
        self._flushed_at = time.monotonic()

    def update(self, job: dict[str, Any], view: JobView, records: Sequence[Record]) -> None:
        """Write the values of steps that all ranks have had time to report, and the speed at the last step."""
        self._write_values(self._values.update(records))
        if view.step != self._step:
            self._step = view.step
            self._file.scalars(view.step, time.time(), dict(_speed(view)))
        if time.monotonic() - self._flushed_at >= FLUSH_S:
            self._flushed_at = time.monotonic()
            self._file.flush()

    def _write_values(self, values: Iterator[tuple[str, int, float, float]]) -> None:
        for name, step, wall_time, value in values:
            self._file.scalars(step, wall_time, {name: value})

    def close(self) -> None:
        """Write the rest."""
        self._write_values(self._values.rest())
        self._file.close()


def _speed(view: JobView) -> Iterator[tuple[str, float]]:
    speeds = {
        "step_ms": view.step_ms,
        "examples_per_s": view.total_per_s("examples"),
        "exposed_fraction": view.exposed_fraction,
    }
    for name, value in speeds.items():
        if value is not None:
            yield f"speed/{name}", value
