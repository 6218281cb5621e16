"""The folder of checkpoints, as one rank sees it.

    checkpoints/
      step-00000200/ rank-0-of-2.safetensors  rank-1-of-2.safetensors
      step-00000300/ rank-0-of-2.safetensors  rank-1-of-2.safetensors

A part is there whole or not at all, with a checksum for each tensor; what is no tensor is JSON in one of them.
Parts of one save carry the same `save_id`. A rank reads, writes and deletes its own parts only.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from argosy.engine.errors import ArgosyError, CorruptFileError
from argosy.engine.files import sync
from argosy.engine.log import logger
from argosy.engine.runtime import store
from argosy.engine.runtime.training_state import Tensors

_STATE = "state of the training (JSON)"
_STEP = re.compile(r"step-(\d{8,})")
_PART = re.compile(r"rank-\d+-of-(\d+)\.safetensors")


class CheckpointFiles:
    """This rank's parts of the checkpoints in a folder."""

    def __init__(self, folder: Path, rank: int, size: int) -> None:
        self.folder, self.rank, self.size = folder, rank, size
        self._bad: set[int] = set()

    def step_folder(self, step: int) -> Path:
        """Where all parts of a step are."""
        return self.folder / f"step-{step:08}"

    def part(self, step: int) -> Path:
        """This rank's part of a step."""
        return self.step_folder(step) / f"rank-{self.rank}-of-{self.size}.safetensors"

    def sizes(self) -> dict[int, int]:
        """For each step that this rank has a part of: how many ranks saved it."""
        found: dict[int, int] = {}
        for path in self.folder.glob(f"step-*/rank-{self.rank}-of-*.safetensors"):
            step, part = _STEP.fullmatch(path.parent.name), _PART.fullmatch(path.name)
            if step and part and found.get(int(step[1])) != self.size:
                found[int(step[1])] = int(part[1])
        return found

    def saves(self) -> dict[int, str]:
        """The `save_id` of each part; those that cannot be read are left out with a warning."""
        found = {}
        for step in self._steps():
            try:
                found[step] = store.read_save_id(self.part(step))
            except ArgosyError as e:
                self.mark_bad(step, str(e))
        return found

    def mark_bad(self, step: int, why: str) -> None:
        """Say that a step cannot be used; it is deleted once a newer one is whole."""
        self._bad.add(step)
        logger.warning("checkpoint %s is skipped: %s", self.step_folder(step), why)

    def write(self, step: int, tensors: Tensors, state: Mapping[str, Any], save_id: str) -> int:
        """Write this rank's part; when it returns, the part is on disk. The number of bytes."""
        text = json.dumps(state).encode("ascii")
        held = {**tensors, _STATE: torch.frombuffer(bytearray(text), dtype=torch.uint8)}
        part = self.part(step)
        part.parent.mkdir(parents=True, exist_ok=True)
        store.replace_files({part: store.tensor_writer(held, store.checksums(held), save_id)})
        for folder in (self.folder, self.folder.parent):  # both may be new names
            sync(folder)
        self._bad.discard(step)
        return part.stat().st_size

    def read(self, step: int) -> tuple[Tensors, dict[str, Any]]:
        """Tensors and state of this rank's part; CorruptFileError if it is not what was written."""
        tensors, _ = store.read_tensors(self.part(step))
        text = tensors.pop(_STATE, None)
        if text is None:
            raise CorruptFileError(f"{self.part(step)} is no checkpoint; take it out of the folder")
        state: dict[str, Any] = json.loads(text.numpy().tobytes())
        return tensors, state

    def delete_older(self, newest: int, keep: int) -> None:
        """Keep this rank's parts of the last `keep` steps, the newest among them; older and bad ones go."""
        good = [step for step in self._steps() if step <= newest and step not in self._bad]
        for folder in self.folder.glob("step-*"):  # also one in which a killed save left but temporary files
            step = _STEP.fullmatch(folder.name)
            if step and int(step[1]) < newest and int(step[1]) not in good[-keep:]:
                store.remove(self.part(int(step[1])))

    def _steps(self) -> list[int]:
        """The steps with a part of this rank in a job of this size, the oldest first."""
        return sorted(step for step in self.sizes() if self.part(step).is_file())
