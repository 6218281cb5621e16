"""Checkpoint: save a training every N steps, and go on after a failure as if nothing had happened.

    for epoch, batch_id, data in checkpoint.batches(loader, epochs=10, executor=exe, program=main):
        exe.run(main, feed=data, fetch_list=[loss])

A step counts when every rank's part of it is whole. To restore, ranks look at what they have and take the newest
step that all of them have of one save; what is torn or altered is skipped with a warning. Old ones are deleted
when a newer one is whole on all ranks.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from argosy.engine.collective import world
from argosy.engine.data.passes import Pass, Place
from argosy.engine.data.random_states import RandomStates
from argosy.engine.data.readers import positive
from argosy.engine.errors import ArgosyError, ConfigError
from argosy.engine.ir.program import Program, default_main_program
from argosy.engine.log import logger
from argosy.engine.runtime.checkpoint_files import CheckpointFiles
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import Scope, global_scope
from argosy.engine.runtime.training_state import Tensors, Training


@dataclass(frozen=True)
class Position:
    """Where a training is: steps done in all, and the next batch to train."""

    step: int
    epoch: int
    batch: int

    def __str__(self) -> str:
        return f"step {self.step} (epoch {self.epoch}, batch {self.batch})"


class Checkpoint:
    """Checkpoints of one training in a folder: one every `every` steps, the last `keep` are kept."""

    def __init__(self, directory: str | os.PathLike[str], every: int = 100, keep: int = 3) -> None:
        self.folder = Path(directory).absolute()
        self.every = positive("every", every)
        self.keep = positive("keep", keep)
        self.step = 0
        """Steps done so far, over all lives of the training."""
        self._saved: int | None = None
        self._known: CheckpointFiles | None = None
        if self.folder.exists() and not self.folder.is_dir():
            raise ConfigError(f"{directory} is a file; give a folder for checkpoints")

    def batches(
        self,
        loader: Any,
        epochs: int,
        executor: Executor,
        program: Program | None = None,
        scope: Scope | None = None,
    ) -> Iterator[tuple[int, int, Any]]:
        """(epoch, batch number, batch) of the whole training, from the newest whole checkpoint on.

        Run the startup program first; what is restored overwrites its values. It saves when the loop comes back
        for the next batch, and at the end; a loop that is left early does not save. `loader`: a DataLoader, or
        any iterable or reader function.
        """
        training = _training(executor, program, scope)
        epochs = positive("epochs", epochs)
        position, place = self._restore(training) or (Position(0, 0, 0), None)
        self.step = position.step
        if place is None and position.batch:
            raise ConfigError(
                f"the checkpoint at {position} was saved by save(), without the place of the reader; go on with "
                "restore() and a loop of your own, or use another directory"
            )
        return self._loop(loader, epochs, training, position.epoch, place)

    def save(
        self,
        step: int,
        executor: Executor,
        program: Program | None = None,
        *,
        epoch: int = 0,
        batch: int = 0,
        scope: Scope | None = None,
    ) -> None:
        """Save now, for loops of the user's own; `restore` gives step, epoch and batch back."""
        self._save(_training(executor, program, scope), Position(step, epoch, batch), None)

    def restore(
        self, executor: Executor, program: Program | None = None, scope: Scope | None = None
    ) -> Position | None:
        """Go on from the newest whole checkpoint; None if there is none. Skipping batches is the caller's part."""
        found = self._restore(_training(executor, program, scope))
        if found and found[1] is not None:
            found[1].now.restore()  # `batches` would do this when its reader is where it was
        return found[0] if found else None

    def _loop(
        self, loader: Any, epochs: int, training: Training, first: int, place: Place | None
    ) -> Iterator[tuple[int, int, Any]]:
        for epoch in range(first, epochs):
            reading = Pass(loader, epoch, place)
            for batch, data in enumerate(reading, place.batch if place else 0):
                yield epoch, batch, data
                self.step += 1
                if self.step % self.every == 0:
                    self._save(training, Position(self.step, epoch, batch + 1), reading.place())
            place = None
        if self._saved != self.step:
            self._save(training, Position(self.step, epochs, 0), None)

    def _save(self, training: Training, position: Position, place: Place | None) -> None:
        began = time.perf_counter()
        files = self._files()
        training.gather(world())
        state = {
            "position": [position.step, position.epoch, position.batch],
            "place": place.to_json() if place else None,
            "random": None if place else RandomStates.capture().to_json(),
            **training.state(),
        }
        # One number for all parts of this save: parts of two lives of the job are never taken together.
        save_id = str(_gather(secrets.token_hex(8), "checkpoint")[0])
        written = files.write(position.step, training.tensors(files.rank), state, save_id)
        _gather("", f"checkpoint {position.step} is written")  # now it is whole on all ranks
        files.delete_older(position.step, self.keep)
        self._saved = position.step
        spent_ms = (time.perf_counter() - began) * 1e3
        where = files.step_folder(position.step)
        logger.info("saved %s to %s: %.1f MB in %.0f ms", position, where, written / 1e6, spent_ms)

    def _restore(self, training: Training) -> tuple[Position, Place | None] | None:
        files = self._files()
        training.tensors(0)  # without values in the scope there is nothing to overwrite: say so now
        found = self._newest_whole(files)
        if found is None:
            return None
        step, tensors, state = found
        where = files.step_folder(step)
        _refuse(where, training.difference(files.rank, tensors, state))
        training.restore(world(), tensors, state)
        place = Place.from_json(state["place"]) if state["place"] else None
        if place is None:
            RandomStates.from_json(state["random"]).restore()
        position = Position(*state["position"])
        self._saved = self.step = step
        if files.rank == 0:  # a user wants to see this, so it is a warning
            logger.warning("resumed at %s from %s", position, where)
        return position, place

    def _newest_whole(self, files: CheckpointFiles) -> tuple[int, Tensors, dict[str, Any]] | None:
        """The newest step whose parts are whole on all ranks and of one save; every rank finds the same."""
        sizes = [dict(pairs) for pairs in _gather(list(files.sizes().items()), "checkpoints")]
        _check_sizes(files, sizes)
        saves = [dict(pairs) for pairs in _gather(list(files.saves().items()), "checkpoints")]
        for step in sorted({step for one in saves for step in one}, reverse=True):
            if len({one.get(step) for one in saves}) > 1:
                files.mark_bad(
                    step, f"the parts of its {files.size} ranks are not all there, or of two saves"
                )
                continue
            read, error = None, ""
            try:
                read = files.read(step)
            except (ArgosyError, OSError) as e:
                error = str(e)
            errors = _gather(error, f"checkpoint {step}")
            if read is not None and not any(errors):
                return step, *read
            files.mark_bad(step, next(filter(None, errors)))
        if any(sizes):
            logger.warning("%s has no checkpoint that is whole: training begins at step 0", self.folder)
        return None

    def _files(self) -> CheckpointFiles:
        if self._known is None:  # at first use: ranks are connected by then
            self._known = CheckpointFiles(self.folder, world().rank, world().size)
        return self._known


def _training(executor: Executor, program: Any, scope: Scope | None) -> Training:
    if not isinstance(executor, Executor):
        raise ConfigError(f"executor is a {type(executor).__name__}; give the static.Executor that trains")
    program = default_main_program() if program is None else getattr(program, "program", program)
    if not isinstance(program, Program):
        raise ConfigError(f"program is a {type(program).__name__}; give the static.Program that is trained")
    return Training(executor, program, scope or global_scope())


def _gather(value: Any, what: str) -> list[Any]:
    """What each rank has to say, in the order of the ranks."""
    if world().size == 1:
        return [value]
    said = world().group("util").all_gather_bytes(json.dumps(value).encode(), what)
    return [json.loads(one) for one in said]


def _refuse(where: Path, difference: str) -> None:
    """If the program of any rank is not the one that was saved, all ranks say so: none is left waiting."""
    for rank, one in enumerate(_gather(difference, "checkpoint")):
        if one:
            raise ConfigError(
                f"{where} is of another program: {one} (rank {rank}); restore it into the program that was saved, "
                "or begin anew in another directory"
            )


def _check_sizes(files: CheckpointFiles, sizes: Sequence[dict[int, int]]) -> None:
    """The newest step must be of a job with as many ranks as this one."""
    newest = max((step for one in sizes for step in one), default=None)
    if newest is None:
        return
    saved = max(one.get(newest, 0) for one in sizes)
    if saved != files.size:
        raise ConfigError(
            f"{files.step_folder(newest)} was saved by a job of size {saved} and this one is of size {files.size}; "
            f"start as many ranks as it had, fleetrun --nproc_per_node={saved} on one host, or begin anew in "
            "another directory"
        )
