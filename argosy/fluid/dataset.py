"""fluid.DatasetFactory: the datasets of argosy.distributed, with the setters of 1.x."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

from argosy.distributed.fleet.dataset import DatasetBase
from argosy.distributed.fleet.dataset import InMemoryDataset as _InMemoryDataset
from argosy.distributed.fleet.dataset import QueueDataset as _QueueDataset
from argosy.engine.errors import ConfigError
from argosy.framework.missing import missing

__all__ = ["DatasetFactory", "InMemoryDataset", "QueueDataset"]


class _Setters(DatasetBase):
    """Setters for the settings, in any order; `set_use_var` must be called."""

    def __init__(self) -> None:
        super().__init__()
        self._given: dict[str, Any] = {}

    def set_batch_size(self, batch_size: int) -> None:
        """Set the number of records in a batch."""
        self._set(batch_size=batch_size)

    def set_thread(self, thread_num: int) -> None:
        """Set the number of readers."""
        self._set(thread_num=thread_num)

    def set_use_var(self, var_list: Sequence[Any]) -> None:
        """Set the variables that a record feeds, in the order of the slots in a line."""
        self._set(use_var=var_list)

    def set_pipe_command(self, pipe_command: str) -> None:
        """Set the shell command that converts a file to lines of slots."""
        self._set(pipe_command=pipe_command)

    def set_hdfs_config(self, fs_name: str, fs_ugi: str) -> None:
        """Raises a ConfigError unless both are empty: HDFS is not supported."""
        self._set(fs_name=fs_name, fs_ugi=fs_ugi)

    def _set(self, **setting: Any) -> None:
        self._given |= setting
        if "use_var" in self._given:
            self.init(**self._given)


class InMemoryDataset(_Setters, _InMemoryDataset):
    """Holds all records of the files in memory."""


class QueueDataset(_Setters, _QueueDataset):
    """Streams the records from the files in every epoch."""


class DatasetFactory:
    """Creates datasets by class name."""

    def create_dataset(self, datafeed_class: str = "QueueDataset") -> InMemoryDataset | QueueDataset:
        """Create a dataset: "QueueDataset" or "InMemoryDataset"."""
        kinds: dict[str, type[InMemoryDataset] | type[QueueDataset]] = {
            "InMemoryDataset": InMemoryDataset,
            "QueueDataset": QueueDataset,
        }
        if datafeed_class not in kinds:
            raise ConfigError(f"create_dataset({datafeed_class!r}): unknown class; use {' or '.join(kinds)}")
        return kinds[datafeed_class]()


__getattr__ = missing(__name__, globals())
