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
    """One call for each setting, in any order; `use_var` must be among them."""

    def __init__(self) -> None:
        super().__init__()
        self._given: dict[str, Any] = {}

    def set_batch_size(self, batch_size: int) -> None:
        """How many records a batch has."""
        self._set(batch_size=batch_size)

    def set_thread(self, thread_num: int) -> None:
        """How many readers there are."""
        self._set(thread_num=thread_num)

    def set_use_var(self, var_list: Sequence[Any]) -> None:
        """The variables that a record feeds, in the order of the text."""
        self._set(use_var=var_list)

    def set_pipe_command(self, pipe_command: str) -> None:
        """What the files go through."""
        self._set(pipe_command=pipe_command)

    def set_hdfs_config(self, fs_name: str, fs_ugi: str) -> None:
        """Raises, unless both are empty."""
        self._set(fs_name=fs_name, fs_ugi=fs_ugi)

    def _set(self, **setting: Any) -> None:
        self._given |= setting
        if "use_var" in self._given:
            self.init(**self._given)


class InMemoryDataset(_Setters, _InMemoryDataset):
    """All records of the files in memory."""


class QueueDataset(_Setters, _QueueDataset):
    """Records straight from the files, in every pass anew."""


class DatasetFactory:
    """Makes datasets by name."""

    def create_dataset(self, datafeed_class: str = "QueueDataset") -> InMemoryDataset | QueueDataset:
        """An empty dataset: "QueueDataset" or "InMemoryDataset"."""
        kinds: dict[str, type[InMemoryDataset] | type[QueueDataset]] = {
            "InMemoryDataset": InMemoryDataset,
            "QueueDataset": QueueDataset,
        }
        if datafeed_class not in kinds:
            raise ConfigError(
                f"create_dataset({datafeed_class!r}): there are {' and '.join(kinds)}; use one of them"
            )
        return kinds[datafeed_class]()


__getattr__ = missing(__name__, globals())
