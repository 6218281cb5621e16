"""Datasets of slots: read files through a pipe_command, and batch the records for `Executor.train_from_dataset`.

QueueDataset       streams the files in every epoch, with a bounded read-ahead
InMemoryDataset    loads the records once, shuffles them (also between workers), and serves every epoch from memory
"""

# SPDX-License-Identifier: Apache-2.0
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from argosy.engine.data.slots.batches import Batch, BatchStream, batches_in_order
from argosy.engine.data.slots.read import RecordStream
from argosy.engine.data.slots.records import Records
from argosy.engine.data.slots.slot import SlotSpec, slots_of
from argosy.engine.errors import ConfigError, UnknownNameError, nearest
from argosy.engine.log import NOTICE, logger
from argosy.framework import checks

__all__ = ["DatasetBase", "InMemoryDataset", "QueueDataset"]

_FEEDS = ("MultiSlotDataFeed", "MultiSlotInMemoryDataFeed")


@dataclass(frozen=True)
class DatasetSettings:
    """The arguments of `init`, with Paddle's names and defaults."""

    batch_size: int = 1
    thread_num: int = 1
    """The number of reader processes, and of training threads unless train_from_dataset overrides it."""
    use_var: Sequence[Any] = ()
    """The variables that a record feeds, in the order of the slots in a line."""
    pipe_command: str = "cat"
    """A shell command, run for each file: reads the file from standard input and writes lines of slots."""
    input_type: int = 0
    fs_name: str = ""
    fs_ugi: str = ""
    download_cmd: str = "cat"
    data_feed_type: str | None = None
    queue_num: int | None = None

    def __post_init__(self) -> None:
        for name in ("batch_size", "thread_num"):
            checks.integer(name, getattr(self, name), least=1)
        if not isinstance(self.pipe_command, str) or not self.pipe_command.strip():
            raise ConfigError(
                f"pipe_command is {self.pipe_command!r}; give a command, such as 'python reader.py'"
            )
        if self.input_type != 0:
            raise ConfigError(f"input_type is {self.input_type!r}; use 0: only text files are supported")
        if self.fs_name or self.fs_ugi:
            raise ConfigError(
                f"fs_name={self.fs_name!r}, fs_ugi={self.fs_ugi!r}: HDFS is not supported by a dataset; mount "
                "it, or copy the files with fleet.utils.HDFSClient"
            )
        if self.download_cmd != "cat":
            raise ConfigError(
                f"download_cmd is {self.download_cmd!r}; use 'cat', and put the decompression in front of the "
                "pipe_command: 'zcat | python reader.py'"
            )
        if self.data_feed_type not in (None, *_FEEDS):
            raise ConfigError(
                f"data_feed_type is {self.data_feed_type!r}; use {' or '.join(_FEEDS)}, or leave it out"
            )
        if self.queue_num is not None and checks.integer("queue_num", self.queue_num, least=1):
            logger.info("queue_num=%d has no effect: all threads read from one queue", self.queue_num)


class DatasetBase:
    """The settings and files that both kinds of datasets have."""

    def __init__(self) -> None:
        self._settings: DatasetSettings | None = None
        self._slots: tuple[SlotSpec, ...] = ()
        self._files: list[str] | None = None

    def init(self, **settings: Any) -> None:
        """batch_size=1, thread_num=1, use_var=[…], pipe_command="cat": see DatasetSettings."""
        self._update(DatasetSettings(), settings)

    def update_settings(self, **settings: Any) -> None:
        """Change some of the settings of `init`."""
        self._update(self._required_settings("update_settings"), settings)

    def set_filelist(self, filelist: Sequence[str]) -> None:
        """Set the files of this worker: fleet.util.get_file_shard(all_files); the list may be empty."""
        if not isinstance(filelist, list | tuple) or not all(isinstance(f, str | Path) for f in filelist):
            raise ConfigError(f"set_filelist: {filelist!r} is not a list of file names; give one")
        self._files = [str(file) for file in filelist]
        if not filelist:
            logger.log(NOTICE, "this worker's file list is empty")

    def get_filelist(self) -> list[str]:
        """The files of this worker."""
        return list(self._files or ())

    @property
    def thread_num(self) -> int:
        """The number of readers: the `thread_num` setting, capped at the number of files."""
        return max(1, min(self._required_settings("thread_num").thread_num, len(self.get_filelist())))

    @property
    def batch_size(self) -> int:
        """The number of records in a batch."""
        return self._required_settings("batch_size").batch_size

    def batches(self) -> Iterator[Batch]:
        """One epoch: batches that map variable names to arrays."""
        raise NotImplementedError(
            f"{type(self).__name__} is an abstract dataset; use InMemoryDataset or QueueDataset"
        )

    def _update(self, old: DatasetSettings, new: dict[str, Any]) -> None:
        known = [field.name for field in fields(DatasetSettings)]
        for name in new:
            if name not in known:
                raise UnknownNameError(f"a dataset has no setting {name!r}{nearest(name, known)}")
        settings = replace(old, **new)
        self._slots = slots_of(list(settings.use_var))
        self._settings = settings

    def _required_settings(self, method: str) -> DatasetSettings:
        if self._settings is None:
            raise ConfigError(f"{method} before init; call dataset.init(batch_size=…, use_var=[…]) first")
        return self._settings

    def _read(self, threads: int | None = None) -> RecordStream:
        command = self._required_settings("reading").pipe_command
        if self._files is None:
            raise ConfigError("the dataset has no files; call set_filelist([…]) first")
        is_paddle = sys.modules.get("paddle") is sys.modules["argosy"]
        modules = str(Path(__file__).parent / "pipe_modules") if is_paddle else None
        return RecordStream(self._files, command, self._slots, threads or self.thread_num, modules)


class QueueDataset(DatasetBase):
    """Streams the records from the files in every epoch, with bounded memory."""

    def batches(self) -> Iterator[Batch]:
        """One epoch over the files; closing the iterator stops the readers."""
        return BatchStream(self._slots, self._read(), self.batch_size)

    def local_shuffle(self) -> None:
        """Raises a ConfigError: a streaming dataset cannot shuffle."""
        raise ConfigError(
            "QueueDataset cannot shuffle, because it streams the records; use InMemoryDataset, or shuffle the files"
        )

    def global_shuffle(self, fleet: Any = None, thread_num: int = 12) -> None:
        """Raises a ConfigError: a streaming dataset cannot shuffle."""
        self.local_shuffle()


class InMemoryDataset(DatasetBase):
    """Holds all records of the files in memory."""

    def __init__(self) -> None:
        super().__init__()
        self._records: Records | None = None
        self._order = np.empty(0, np.int64)
        self._preload: _Preload | None = None

    def load_into_memory(self) -> None:
        """Read all files into memory."""
        self._set_records(_joined(self._slots, self._read()))

    def preload_into_memory(self, thread_num: int | None = None) -> None:
        """Start to read all files in the background with `thread_num` readers; `wait_preload_done` waits for it."""
        if self._preload is not None:
            raise ConfigError("preload_into_memory is already running; call wait_preload_done first")
        threads = None if thread_num is None else checks.integer("thread_num", thread_num, least=1)
        self._preload = _Preload(self._slots, self._read(threads))

    def wait_preload_done(self) -> None:
        """Wait until the records of `preload_into_memory` are in memory."""
        if self._preload is None:
            raise ConfigError("wait_preload_done without preload_into_memory; call that first")
        preload, self._preload = self._preload, None
        self._set_records(preload.wait())

    def release_memory(self) -> None:
        """Free the records, and cancel a running preload."""
        self._records, self._order = None, self._order[:0]
        if self._preload is not None:
            self._preload.cancel()
            self._preload = None

    def local_shuffle(self) -> None:
        """Shuffle this worker's records with torch's random generator (`argosy.seed`)."""
        self._order = _generator().permutation(len(self._loaded("local_shuffle")))

    def global_shuffle(self, fleet: Any = None, thread_num: int = 12) -> None:
        """Send each record to a random worker, then shuffle locally. A collective call: all workers must make it.

        Without `fleet`, or with one worker, it is a local shuffle. `thread_num` exists for Paddle and has no effect.
        """
        records = self._loaded("global_shuffle")
        workers = 1 if fleet is None else fleet.worker_num()
        if workers > 1:
            target = _generator().integers(workers, size=len(records))
            parts = [records.take(np.flatnonzero(target == worker)).to_bytes() for worker in range(workers)]
            self._records = None  # free them: the parts hold a copy
            received = fleet.util._all_to_all_records(parts)
            self._set_records(
                Records.concat(self._slots, [Records.from_bytes(self._slots, part) for part in received])
            )
        self.local_shuffle()

    def slots_shuffle(self, slots: Sequence[str]) -> None:
        """Permute the values of these slots between the records, each slot independently.

        This measures the importance of a feature: if the evaluation does not degrade, the slot carries no signal.
        """
        records, known = self._loaded("slots_shuffle"), [slot.name for slot in self._slots]
        if isinstance(slots, str) or any(name not in known for name in slots):
            raise ConfigError(
                f"slots_shuffle: {slots!r} is not a list of slots; the slots are {', '.join(known)}"
            )
        for name in slots:
            records = records.with_slot_from(name, _generator().permutation(len(records)))
        self._records = records

    def get_memory_data_size(self, fleet: Any = None) -> int:
        """The number of records in memory; with `fleet`, the sum over all workers (a collective call)."""
        return _sum(0 if self._records is None else len(self._records), fleet)

    def get_shuffle_data_size(self, fleet: Any = None) -> int:
        """The number of records after a shuffle; with `fleet`, the sum over all workers (a collective call)."""
        return self.get_memory_data_size(fleet)

    def batches(self) -> Iterator[Batch]:
        """One epoch over the records, in the order of the last shuffle."""
        return batches_in_order(self._loaded("batches"), self._order, self.batch_size)

    def _set_records(self, records: Records) -> None:
        self._records, self._order = records, np.arange(len(records))

    def _loaded(self, method: str) -> Records:
        if self._records is None:
            raise ConfigError(f"{method}: no records are in memory; call load_into_memory() first")
        return self._records


class _Preload:
    """Reads records in a background thread."""

    def __init__(self, slots: tuple[SlotSpec, ...], stream: RecordStream) -> None:
        self._slots, self._stream = slots, stream
        self._records: Records | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="argosy-preload", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._records = _joined(self._slots, self._stream)
        except BaseException as e:
            self._error = e

    def wait(self) -> Records:
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._records or Records.empty(self._slots)

    def cancel(self) -> None:
        self._stream.close()
        self._thread.join()


def _joined(slots: tuple[SlotSpec, ...], stream: RecordStream) -> Records:
    try:
        return Records.concat(slots, list(stream))
    finally:
        stream.close()


def _generator() -> np.random.Generator:
    """A NumPy generator seeded from torch's, so that `argosy.seed` makes it deterministic."""
    return np.random.default_rng(int(torch.randint(2**62, ())))


def _sum(number: int, fleet: Any) -> int:
    return number if fleet is None else int(fleet.util.all_reduce(np.array([number]), "sum", "worker")[0])
