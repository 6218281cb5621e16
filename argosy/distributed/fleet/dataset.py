"""Datasets of slots: files through a pipe_command, into batches for `Executor.train_from_dataset`.

QueueDataset       reads the files anew in every pass, a few parts ahead
InMemoryDataset    reads them once, shuffles, also among the workers, and gives the records again and again
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

from argosy.engine.data.slots.batches import Batch, ReadBatches, batches_in_order
from argosy.engine.data.slots.read import Reading
from argosy.engine.data.slots.records import Records
from argosy.engine.data.slots.slot import Slot, slots_of
from argosy.engine.errors import ConfigError, UnknownNameError
from argosy.engine.ir.nearest import nearest
from argosy.engine.log import NOTICE, logger
from argosy.framework import checks

__all__ = ["DatasetBase", "InMemoryDataset", "QueueDataset"]

_FEEDS = ("MultiSlotDataFeed", "MultiSlotInMemoryDataFeed")


@dataclass(frozen=True)
class Settings:
    """What `init` takes, with Paddle's names and defaults."""

    batch_size: int = 1
    thread_num: int = 1
    """Readers, each a process; and training threads, unless train_from_dataset is told otherwise."""
    use_var: Sequence[Any] = ()
    """The variables that a record feeds, in the order of the text."""
    pipe_command: str = "cat"
    """Run by the shell for each file, which is its standard input; it writes lines of slots."""
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
            raise ConfigError(f"input_type is {self.input_type!r}; use 0: files of text are all that is read")
        if self.fs_name or self.fs_ugi:
            raise ConfigError(
                f"fs_name={self.fs_name!r}, fs_ugi={self.fs_ugi!r}: Argosy reads no HDFS; mount it, or copy the files"
            )
        if self.download_cmd != "cat":
            raise ConfigError(
                f"download_cmd is {self.download_cmd!r}; use 'cat', and put what unpacks the files in front of the "
                "pipe_command: 'zcat | python reader.py'"
            )
        if self.data_feed_type not in (None, *_FEEDS):
            raise ConfigError(
                f"data_feed_type is {self.data_feed_type!r}; use {' or '.join(_FEEDS)}, or leave it out"
            )
        if self.queue_num is not None and checks.integer("queue_num", self.queue_num, least=1):
            logger.info("queue_num=%d is not needed: all threads take from one queue", self.queue_num)


class DatasetBase:
    """What the two kinds share: settings and files."""

    def __init__(self) -> None:
        self._settings: Settings | None = None
        self._slots: tuple[Slot, ...] = ()
        self._files: list[str] | None = None

    def init(self, **settings: Any) -> None:
        """batch_size=1, thread_num=1, use_var=[…], pipe_command="cat": see Settings."""
        self._take(Settings(), settings)

    def update_settings(self, **settings: Any) -> None:
        """Change some of the settings of `init`."""
        self._take(self._checked("update_settings"), settings)

    def set_filelist(self, filelist: Sequence[str]) -> None:
        """The files of this worker: fleet.util.get_file_shard(all_files); there may be none for it."""
        if not isinstance(filelist, list | tuple) or not all(isinstance(f, str | Path) for f in filelist):
            raise ConfigError(f"set_filelist: {filelist!r} is no list of file names; give one")
        self._files = [str(file) for file in filelist]
        if not filelist:
            logger.log(NOTICE, "this worker's share of the files is empty")

    def get_filelist(self) -> list[str]:
        """The files."""
        return list(self._files or ())

    @property
    def thread_num(self) -> int:
        """How many readers there are: as asked for, and no more than files."""
        return max(1, min(self._checked("thread_num").thread_num, len(self.get_filelist())))

    @property
    def batch_size(self) -> int:
        """How many records a batch has."""
        return self._checked("batch_size").batch_size

    def batches(self) -> Iterator[Batch]:
        """One pass over the data: arrays by the names of the variables."""
        raise NotImplementedError(f"{type(self).__name__} is no dataset; use InMemoryDataset or QueueDataset")

    def _take(self, old: Settings, new: dict[str, Any]) -> None:
        known = [field.name for field in fields(Settings)]
        for name in new:
            if name not in known:
                raise UnknownNameError(f"a dataset has no setting {name!r}{nearest(name, known)}")
        settings = replace(old, **new)
        self._slots = slots_of(list(settings.use_var))
        self._settings = settings

    def _checked(self, asking: str) -> Settings:
        if self._settings is None:
            raise ConfigError(f"{asking} before init; call dataset.init(batch_size=…, use_var=[…]) first")
        return self._settings

    def _read(self, threads: int | None = None) -> Reading:
        command = self._checked("reading").pipe_command
        if self._files is None:
            raise ConfigError("the dataset has no files; call set_filelist([…]) first")
        is_paddle = sys.modules.get("paddle") is sys.modules["argosy"]
        modules = str(Path(__file__).parent / "pipe_modules") if is_paddle else None
        return Reading(self._files, command, self._slots, threads or self.thread_num, modules)


class QueueDataset(DatasetBase):
    """Records straight from the files, in every pass anew; only a few parts of them are in memory."""

    def batches(self) -> Iterator[Batch]:
        """One pass over the files; closing it ends the readers."""
        return ReadBatches(self._slots, self._read(), self.batch_size)

    def local_shuffle(self) -> None:
        """Raises: what is not in memory cannot be shuffled."""
        raise ConfigError(
            "QueueDataset does not shuffle, since it never holds all records; use InMemoryDataset, or shuffle the files"
        )

    def global_shuffle(self, fleet: Any = None, thread_num: int = 12) -> None:
        """Raises: what is not in memory cannot be shuffled."""
        self.local_shuffle()


class InMemoryDataset(DatasetBase):
    """All records of the files in memory."""

    def __init__(self) -> None:
        super().__init__()
        self._records: Records | None = None
        self._order = np.empty(0, np.int64)
        self._preload: _Preload | None = None

    def load_into_memory(self) -> None:
        """Read all files."""
        self._hold(_joined(self._slots, self._read()))

    def preload_into_memory(self, thread_num: int | None = None) -> None:
        """Begin to read all files; `wait_preload_done` waits for it. `thread_num` readers do it."""
        if self._preload is not None:
            raise ConfigError("preload_into_memory a second time; call wait_preload_done first")
        threads = None if thread_num is None else checks.integer("thread_num", thread_num, least=1)
        self._preload = _Preload(self._slots, self._read(threads))

    def wait_preload_done(self) -> None:
        """Return when what `preload_into_memory` began is in memory."""
        if self._preload is None:
            raise ConfigError("wait_preload_done without preload_into_memory; call that first")
        preload, self._preload = self._preload, None
        self._hold(preload.wait())

    def release_memory(self) -> None:
        """Forget the records, and end what loads others."""
        self._records, self._order = None, self._order[:0]
        if self._preload is not None:
            self._preload.cancel()
            self._preload = None

    def local_shuffle(self) -> None:
        """Put this worker's records in random order, drawn from torch's generator (`argosy.seed`)."""
        self._order = _generator().permutation(len(self._loaded("local_shuffle")))

    def global_shuffle(self, fleet: Any = None, thread_num: int = 12) -> None:
        """Send each record to a worker chosen at random, then shuffle; all workers call it together.

        Without `fleet`, or with one worker, it is a local shuffle. `thread_num` is Paddle's and not needed.
        """
        records = self._loaded("global_shuffle")
        workers = 1 if fleet is None else fleet.worker_num()
        if workers > 1:
            target = _generator().integers(workers, size=len(records))
            parts = [records.chosen(np.flatnonzero(target == worker)).to_bytes() for worker in range(workers)]
            self._records = None  # they lie in the parts: not three times in memory
            found = fleet.util._exchange_records(parts)
            self._hold(Records.joined(self._slots, [Records.from_bytes(self._slots, part) for part in found]))
        self.local_shuffle()

    def slots_shuffle(self, slots: Sequence[str]) -> None:
        """Let the records exchange their values of these slots at random, each slot by itself.

        So one learns what a slot is worth: a test that gets no worse does not need it.
        """
        records, known = self._loaded("slots_shuffle"), [slot.name for slot in self._slots]
        if isinstance(slots, str) or any(name not in known for name in slots):
            raise ConfigError(f"slots_shuffle: {slots!r} is no list of slots; there are {', '.join(known)}")
        for name in slots:
            records = records.with_slot_of(name, _generator().permutation(len(records)))
        self._records = records

    def get_memory_data_size(self, fleet: Any = None) -> int:
        """How many records are in memory; with `fleet`, of all workers, which then call it together."""
        return _sum(0 if self._records is None else len(self._records), fleet)

    def get_shuffle_data_size(self, fleet: Any = None) -> int:
        """How many records there are after a shuffle; with `fleet`, of all workers."""
        return self.get_memory_data_size(fleet)

    def batches(self) -> Iterator[Batch]:
        """One pass over the records, in the order of the last shuffle."""
        return batches_in_order(self._loaded("batches"), self._order, self.batch_size)

    def _hold(self, records: Records) -> None:
        self._records, self._order = records, np.arange(len(records))

    def _loaded(self, asking: str) -> Records:
        if self._records is None:
            raise ConfigError(f"{asking}: there is nothing in memory; call load_into_memory() first")
        return self._records


class _Preload:
    """Reads records in a thread."""

    def __init__(self, slots: tuple[Slot, ...], reading: Reading) -> None:
        self._slots, self._reading = slots, reading
        self._made: Records | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="argosy-preload", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._made = _joined(self._slots, self._reading)
        except BaseException as e:
            self._error = e

    def wait(self) -> Records:
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._made or Records.none(self._slots)

    def cancel(self) -> None:
        self._reading.close()
        self._thread.join()


def _joined(slots: tuple[Slot, ...], reading: Reading) -> Records:
    try:
        return Records.joined(slots, list(reading))
    finally:
        reading.close()


def _generator() -> np.random.Generator:
    """Random numbers that `argosy.seed` decides."""
    return np.random.default_rng(int(torch.randint(2**62, ())))


def _sum(number: int, fleet: Any) -> int:
    return number if fleet is None else int(fleet.util.all_reduce(np.array([number]), "sum", "worker")[0])
