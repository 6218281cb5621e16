"""The directory of checkpoints, for one rank.

    checkpoints/
      step-00000200/ rank-0-of-2.safetensors  rank-1-of-2.safetensors
      step-00000300/ rank-0-of-2.safetensors  rank-1-of-2.safetensors
                     servers.safetensors  users_txt/                     of parameter servers, if there are any

A part is written atomically, with a checksum for each tensor; other state is JSON in one of the tensors. Parts of one
save have the same `save_id`. A rank reads, writes and deletes only its own parts.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from argosy.engine.errors import ArgosyError, ConfigError, CorruptFileError
from argosy.engine.files import sync
from argosy.engine.log import logger
from argosy.engine.runtime import atomic_files, server_files
from argosy.engine.runtime.training_state import Tensors

_STATE = "state of the training (JSON)"
_STEP = re.compile(r"step-(\d{8,})")
_PART = re.compile(r"rank-\d+-of-(\d+)\.safetensors")


def make_folder(folder: Path) -> None:
    """Create the directory of checkpoints if it does not exist; raises ConfigError if that fails."""
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as e:  # ValueError: an invalid name
        raise ConfigError(
            f"checkpoints cannot be stored in {str(folder)!r}: {e}; give a directory that can be created and written to"
        ) from e


class CheckpointFiles:
    """This rank's parts of the checkpoints in a directory."""

    def __init__(self, folder: Path, rank: int, size: int) -> None:
        self.folder, self.rank, self.size = folder, rank, size
        self._bad: set[int] = set()
        make_folder(folder)

    def step_folder(self, step: int) -> Path:
        """The directory of all parts of a step."""
        return self.folder / f"step-{step:08}"

    def part(self, step: int) -> Path:
        """This rank's part of a step."""
        return self.step_folder(step) / f"rank-{self.rank}-of-{self.size}.safetensors"

    def servers_part(self, step: int) -> Path:
        """The part of the parameter servers of a step."""
        return self.step_folder(step) / "servers.safetensors"

    def sizes(self) -> dict[int, int]:
        """Step -> the size of the job that saved it, for each step that this rank has a part of."""
        sizes: dict[int, int] = {}
        for path in self.folder.glob(f"step-*/rank-{self.rank}-of-*.safetensors"):
            step, part = _STEP.fullmatch(path.parent.name), _PART.fullmatch(path.name)
            if step and part and sizes.get(int(step[1])) != self.size:
                sizes[int(step[1])] = int(part[1])
        return sizes

    def saves(self) -> dict[int, str]:
        """Step -> `save_id` of each part; unreadable parts are skipped with a warning."""
        save_ids = {}
        for step in self._steps():
            try:
                save_ids[step] = atomic_files.read_save_id(self.part(step))
            except ArgosyError as e:
                self.mark_bad(step, str(e))
        return save_ids

    def mark_bad(self, step: int, reason: str) -> None:
        """Mark a step as unusable; it is deleted once a newer one is complete."""
        self._bad.add(step)
        logger.warning("checkpoint %s is skipped: %s", self.step_folder(step), reason)

    def write(self, step: int, tensors: Tensors, state: Mapping[str, Any], save_id: str) -> int:
        """Write this rank's part durably; returns the number of bytes."""
        text = json.dumps(state).encode("ascii")
        values = {**tensors, _STATE: torch.frombuffer(bytearray(text), dtype=torch.uint8)}
        part = self.part(step)
        atomic_files.replace_files(
            {part: atomic_files.tensor_writer(values, atomic_files.checksums(values), save_id)}
        )
        for folder in (self.folder, self.folder.parent):  # both may be new directories
            sync(folder)
        self._bad.discard(step)
        return part.stat().st_size

    def read(self, step: int) -> tuple[Tensors, dict[str, Any]]:
        """Tensors and state of this rank's part; raises CorruptFileError if a checksum does not match."""
        tensors, _ = atomic_files.read_tensors(self.part(step))
        text = tensors.pop(_STATE, None)
        if text is None:
            raise CorruptFileError(f"{self.part(step)} is not a checkpoint; remove it from the directory")
        state: dict[str, Any] = json.loads(text.numpy().tobytes())
        return tensors, state

    def delete_older(self, newest: int, keep: int) -> None:
        """Delete this rank's parts of older and bad steps; the last `keep` steps are retained."""
        good = [step for step in self._steps() if step <= newest and step not in self._bad]
        for folder in self.folder.glob("step-*"):  # also those where a killed save left only temporary files
            step = _STEP.fullmatch(folder.name)
            if step and int(step[1]) < newest and int(step[1]) not in good[-keep:]:
                if self.rank == 0:
                    server_files.remove(self.servers_part(int(step[1])))
                atomic_files.remove(self.part(int(step[1])))

    def _steps(self) -> list[int]:
        """The steps with a part of this rank in a job of this size, the oldest first."""
        return sorted(step for step in self.sizes() if self.part(step).is_file())
