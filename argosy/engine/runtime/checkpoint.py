"""Checkpoint: save the state of a training every N steps, and resume from it after a failure.

    for epoch, batch_id, data in checkpoint.batches(loader, epochs=10, executor=exe, program=main):
        exe.run(main, feed=data, fetch_list=[loss])

In a job with parameter servers, all workers wait while worker 0 makes the servers save their state; to restore, it
makes them load it, for any number of servers.

A checkpoint is complete when the parts of all ranks are. To restore, the ranks agree on the newest step that all of
them have from one save; truncated or corrupt checkpoints are skipped with a warning. Old checkpoints are deleted when a
newer one is complete on all ranks.

In a job with a grace period, SIGTERM to any of its processes makes all of them save at the same step, and exit.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from argosy.engine import env
from argosy.engine.collective import world
from argosy.engine.data.epoch import EpochIterator, ReaderState
from argosy.engine.data.random_states import RandomStates
from argosy.engine.data.readers import positive
from argosy.engine.errors import ArgosyError, ConfigError, Preempted
from argosy.engine.ir.program import Program, default_main_program
from argosy.engine.kernels import choices
from argosy.engine.log import NOTICE, logger
from argosy.engine.metrics.metrics_recorder import recorder
from argosy.engine.ps.trainer.trainer import Trainer, current, disconnect, is_connected
from argosy.engine.runtime import preemption, server_files
from argosy.engine.runtime.checkpoint_files import CheckpointFiles
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import Scope, global_scope
from argosy.engine.runtime.training_state import Tensors, Training

REQUEUE_CODE = 75
"""EX_TEMPFAIL of sysexits.h: a temporary failure, to be tried again."""
_GEO = "@geo@"
"""The prefix of the names of tensors that are not variables of the program."""


@dataclass(frozen=True)
class Position:
    """The position of a training: completed steps, and the next batch."""

    step: int
    epoch: int
    batch: int

    def __str__(self) -> str:
        return f"step {self.step} (epoch {self.epoch}, batch {self.batch})"


class Checkpoint:
    """Checkpoints of one training in a directory: one every `every` steps, of which the last `keep` are retained."""

    def __init__(self, directory: str | os.PathLike[str], every: int = 100, keep: int = 3) -> None:
        self.folder = Path(directory).absolute()
        self.every = positive("every", every)
        self.keep = positive("keep", keep)
        self.step = 0
        """Completed steps, over all restarts of the training."""
        self._saved: int | None = None
        self._known: CheckpointFiles | None = None
        if os.path.isfile(self.folder):  # False, where Path.is_file raises, for a name that no file can have
            raise ConfigError(f"{directory} is a file; give a directory for checkpoints")

    def batches(
        self,
        loader: Any,
        epochs: int,
        executor: Executor,
        program: Program | None = None,
        scope: Scope | None = None,
    ) -> Iterator[tuple[int, int, Any]]:
        """Iterate over (epoch, batch number, batch) of the training, from the newest complete checkpoint on.

        Run the startup program first; restored values overwrite its values. Saves when the loop requests the next
        batch, and at the end; a loop that is left early does not save. `loader`: a DataLoader, or any iterable or
        reader function. After a preemption (fleetrun --grace) it saves and raises SystemExit with the requeue code.
        """
        training = _training(executor, program, scope)
        epochs = positive("epochs", epochs)
        training.servers()  # workers stop together: connect first
        preemption.watch()
        position, place = self._restore(training) or (Position(0, 0, 0), None)
        self.step = position.step
        if place is None and position.batch:
            raise ConfigError(
                f"the checkpoint at {position} was saved by save(), without the position of the reader; resume with "
                "restore() and your own loop, or use another directory"
            )
        return self._loop(loader, epochs, training, position, place)

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
        """Save now, for the user's own loops; `restore` returns step, epoch and batch."""
        self._save(_training(executor, program, scope), Position(step, epoch, batch), None)

    def restore(
        self, executor: Executor, program: Program | None = None, scope: Scope | None = None
    ) -> Position | None:
        """Restore the newest complete checkpoint; None if there is none. The caller skips the trained batches."""
        restored = self._restore(_training(executor, program, scope))
        if restored and restored[1] is not None:
            restored[1].now.restore()  # `batches` does this when its reader has reached the position
        return restored[0] if restored else None

    def preempted(self) -> bool:
        """Whether to stop now, for the user's own loops: all ranks call it once after each step.

        True on all ranks after the same step, once SIGTERM has reached one of them in a job with a grace period
        (fleetrun --grace): save, and call `exit_for_requeue`. The first call handles SIGTERM from then on.
        """
        preemption.watch()
        return preemption.at_boundary()

    def exit_for_requeue(self) -> NoReturn:
        """Raise SystemExit with the code that lets the job be started again; it resumes from the last save."""
        if self._saved is None or self._known is None:
            raise ConfigError(
                "exit_for_requeue before a checkpoint was saved: the job would start from step 0 again; call save first"
            )
        saved = f"step {self._saved} is saved in {self._known.step_folder(self._saved)}"
        if self._known.rank == 0:
            logger.log(NOTICE, "preempted: %s; start the job again to resume from it", saved)
        disconnect(is_preempted=True)
        raise Preempted(env.requeue_code() or REQUEUE_CODE, f"preempted: {saved}")

    def _loop(
        self, loader: Any, epochs: int, training: Training, position: Position, place: ReaderState | None
    ) -> Iterator[tuple[int, int, Any]]:
        try:
            self._stop_if_preempted(training, position, lambda: place)
            for epoch in range(position.epoch, epochs):
                reading = EpochIterator(loader, epoch, place)
                for batch, data in enumerate(reading, place.batch if place else 0):
                    yield epoch, batch, data
                    self.step += 1
                    recorder().progress(batch + 1, _length(loader), epoch + 1, epochs)
                    position = Position(self.step, epoch, batch + 1)
                    if self.step % self.every == 0:
                        self._save(training, position, reading.state())
                    self._stop_if_preempted(training, position, reading.state)
                place = None
            if self._saved != self.step:
                self._save(training, Position(self.step, epochs, 0), None)
        finally:
            preemption.unwatch()

    def _stop_if_preempted(
        self, training: Training, position: Position, place: Callable[[], ReaderState | None]
    ) -> None:
        """At the boundary at which all ranks stop: save, unless this step is saved, and exit."""
        if not preemption.at_boundary():
            return
        if self._saved != position.step:
            self._save(training, position, place())
        self.exit_for_requeue()

    def _save(self, training: Training, position: Position, place: ReaderState | None) -> None:
        began = time.perf_counter()
        files, servers = self._files(training), training.servers()
        wholes: Tensors = {}
        if servers is None:
            wholes = training.gather(world(), "saving a Checkpoint")
        else:
            server_files.send_pending_changes(servers, training.scope)
        state = {
            "position": [position.step, position.epoch, position.batch],
            "place": place.to_json() if place else None,
            "random": None if place else RandomStates.capture().to_json(),
            "kernels": choices.of_process().state(),
            **training.state(),
        }
        # The same id for all parts of this save, so that parts of two incarnations of the job are never mixed.
        save_id = str(_gather(secrets.token_hex(8), "checkpoint")[0])
        if (
            servers is not None and files.rank == 0
        ):  # the other workers wait below, so the state does not change
            server_files.save(servers, {}, files.servers_part(position.step))
        tensors = {**training.tensors(files.rank, wholes), **_geo_state(servers)}
        written = files.write(position.step, tensors, state, save_id)
        _gather("", f"checkpoint {position.step} is written")  # a barrier: now it is complete on all ranks
        files.delete_older(position.step, self.keep)
        self._saved = position.step
        elapsed_ms = (time.perf_counter() - began) * 1e3
        where = files.step_folder(position.step)
        logger.info("saved %s to %s: %.1f MB in %.0f ms", position, where, written / 1e6, elapsed_ms)

    def _restore(self, training: Training) -> tuple[Position, ReaderState | None] | None:
        files, servers = self._files(training), training.servers()
        if servers is not None and env.number("ARGOSY_RESTART"):
            raise ConfigError(
                "this worker was restarted alone, and the servers and the other workers have continued: it cannot "
                "restore a checkpoint; start the job without --max_restarts, and start it again when it has ended"
            )
        training.tensors(0)  # raises early if the scope has no values to overwrite
        newest = self._newest_complete(files, has_servers=servers is not None)
        if newest is None:
            return None
        step, tensors, state = newest
        where = files.step_folder(step)
        geo = {name.removeprefix(_GEO): tensors.pop(name) for name in list(tensors) if name.startswith(_GEO)}
        _reject(where, training.difference(files.rank, tensors, state))
        training.restore(world(), tensors, state)
        choices.of_process().restore(state.get("kernels", []))
        if servers is not None:
            servers.load(str(files.servers_part(step)))
            training.take_from(servers)
            if geo:
                servers.geo.load(geo)
        place = ReaderState.from_json(state["place"]) if state["place"] else None
        if place is None:
            RandomStates.from_json(state["random"]).restore()
        position = Position(*state["position"])
        self._saved = self.step = recorder().step = step
        if files.rank == 0:  # a warning, so that it is shown by default
            logger.log(NOTICE, "resumed at %s from %s", position, where)
        return position, place

    def _newest_complete(
        self, files: CheckpointFiles, has_servers: bool
    ) -> tuple[int, Tensors, dict[str, Any]] | None:
        """The newest step whose parts are valid on all ranks and from one save; the same on every rank."""
        sizes = [dict(pairs) for pairs in _gather(list(files.sizes().items()), "checkpoints")]
        _check_sizes(files, sizes)
        saves = [dict(pairs) for pairs in _gather(list(files.saves().items()), "checkpoints")]
        for step in sorted({step for by_step in saves for step in by_step}, reverse=True):
            if len({by_step.get(step) for by_step in saves}) > 1:
                files.mark_bad(step, f"parts of its {files.size} ranks are missing, or of different saves")
                continue
            read, error = None, ""
            try:
                read = files.read(step)
                if has_servers and files.rank == 0:
                    server_files.check(files.servers_part(step))
            except (ArgosyError, OSError) as e:
                error = str(e)
            errors = _gather(error, f"checkpoint {step}")
            if read is not None and not any(errors):
                return step, *read
            files.mark_bad(step, next(filter(None, errors)))
        if any(sizes):
            logger.log(NOTICE, "%s has no complete checkpoint: training begins at step 0", self.folder)
        return None

    def _files(self, training: Training) -> CheckpointFiles:
        if self._known is None:  # at first use: ranks are connected by then
            servers = training.servers()
            group = world() if servers is None else servers.group
            self._known = CheckpointFiles(self.folder, group.rank, group.size)
        return self._known


def _geo_state(servers: Trainer | None) -> Tensors:
    """geo: this worker's state of tables."""
    if servers is None or servers.plan.mode != "geo":
        return {}
    return {f"{_GEO}{name}": value for name, value in servers.geo.state().items()}


def _length(loader: Any) -> int | None:
    """The number of batches of an epoch; None if the loader does not know."""
    try:
        return len(loader)
    except TypeError:
        return None


def _training(executor: Executor, program: Any, scope: Scope | None) -> Training:
    if not isinstance(executor, Executor):
        raise ConfigError(f"executor is a {type(executor).__name__}; give the static.Executor that trains")
    program = default_main_program() if program is None else getattr(program, "program", program)
    if not isinstance(program, Program):
        raise ConfigError(f"program is a {type(program).__name__}; give the static.Program that is trained")
    return Training(executor, program, scope or global_scope())


def _gather(value: Any, what: str) -> list[Any]:
    """All-gather a JSON value over the ranks, or workers."""
    encoded = json.dumps(value).encode()
    if is_connected():
        gathered = current().group.all_gather_bytes(encoded, what)
    else:
        gathered = [encoded] if world().size == 1 else world().group("util").all_gather_bytes(encoded, what)
    return [json.loads(text) for text in gathered]


def _reject(where: Path, difference: str) -> None:
    """Raise ConfigError on all ranks if the program of any rank is not the saved one, so that no rank waits."""
    for rank, text in enumerate(_gather(difference, "checkpoint")):
        if text:
            raise ConfigError(
                f"{where} is of another program: {text} (rank {rank}); restore it into the program that was saved, "
                "or start in another directory"
            )


def _check_sizes(files: CheckpointFiles, sizes: Sequence[dict[int, int]]) -> None:
    """Raise ConfigError if the newest step was saved by a job with another number of ranks."""
    newest = max((step for by_step in sizes for step in by_step), default=None)
    if newest is None:
        return
    saved = max(by_step.get(newest, 0) for by_step in sizes)
    if saved != files.size:
        raise ConfigError(
            f"{files.step_folder(newest)} was saved by a job of size {saved} and this one is of size {files.size}; "
            f"start as many ranks as it had, fleetrun --nproc_per_node={saved} on one host, or start in another "
            "directory"
        )
