"""Checkpoints of 1.x collective jobs: __paddle_fleet_checkpoint__.N, with all variables and the finished epoch.

`fleet.Checkpoint` of 2.0 also saves the positions of readers and the state of each rank.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program
from argosy.engine.log import logger
from argosy.engine.runtime.executor import Executor
from argosy.fluid import io
from argosy.fluid.incubate.fleet.utils.fs import LocalFS
from argosy.framework.checks import integer

_PREFIX, _STATUS_FILE = "__paddle_fleet_checkpoint__", "fleet_train_status"


class TrainStatus:
    """The last epoch that was finished; -1: none."""

    def __init__(self, epoch_no: int = -1) -> None:
        self._epoch_no = integer("epoch_no", epoch_no, least=-1)

    def next(self) -> int:
        """The epoch to train next."""
        return self._epoch_no + 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TrainStatus) and self._epoch_no == other._epoch_no

    def __hash__(self) -> int:
        return hash(self._epoch_no)

    def __repr__(self) -> str:
        return f"TrainStatus({self._epoch_no})"


def check_file_system(fs: Any) -> None:
    """Raise unless `fs` is a local file system, or None."""
    if fs is not None and not isinstance(fs, LocalFS):
        raise ConfigError(
            f"fs is a {type(fs).__name__}; checkpoints are written to a mounted file system: use LocalFS(), or leave "
            "it out"
        )


@contextmanager
def new_checkpoint(path: str, status: TrainStatus, writes: bool) -> Iterator[str]:
    """A directory for the variables, which becomes the newest checkpoint on exit; only where it `writes`."""
    if not isinstance(status, TrainStatus):
        raise ConfigError(f"train_status is a {type(status).__name__}; give a TrainStatus(epoch)")
    number = max(_numbers(path), default=-1) + 1
    directory = Path(path, f"{_PREFIX}.{number}")
    temporary = directory.with_name(f"{directory.name}.tmp")
    if writes:
        shutil.rmtree(temporary, ignore_errors=True)  # of a process that was killed while it saved
        temporary.mkdir(parents=True)
    yield str(temporary)
    if writes:
        (temporary / _STATUS_FILE).write_text(json.dumps({"epoch_no": status._epoch_no}))
        temporary.rename(directory)


def load_newest(executor: Executor, path: str, program: Program, ignore_empty: bool) -> TrainStatus | None:
    """Read the variables of the newest checkpoint into the scope; returns its status."""
    number = max(_numbers(path), default=None)
    if number is None:
        if not ignore_empty:
            raise ConfigError(f"no checkpoint in {path}; give a directory that save_checkpoint has written")
        logger.warning("no checkpoint in %s: the training begins with the first epoch", path)
        return None
    directory = Path(path, f"{_PREFIX}.{number}")
    io.load_persistables(executor, str(directory), program)
    return TrainStatus(json.loads((directory / _STATUS_FILE).read_text())["epoch_no"])


def remove_older(path: str, keep: int = 1) -> None:
    """Remove all checkpoints but the newest `keep`."""
    for number in sorted(_numbers(path))[: -integer("checkpoint_num", keep, least=1)]:
        shutil.rmtree(Path(path, f"{_PREFIX}.{number}"))


def _numbers(path: str) -> list[int]:
    """The numbers of the complete checkpoints."""
    names = [entry.name for entry in Path(path).iterdir()] if Path(path).is_dir() else []
    matches = [re.fullmatch(rf"{_PREFIX}\.(\d+)", name) for name in names]
    return [int(match[1]) for match in matches if match]
