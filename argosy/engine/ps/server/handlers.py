"""Handlers of pulls, of the initial values, and of saves."""

# SPDX-License-Identifier: Apache-2.0
import threading
import time
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from argosy.engine.checksum import checksum_of
from argosy.engine.errors import ConfigError
from argosy.engine.ps.protocol import messages
from argosy.engine.ps.protocol.job_plan import JobPlan
from argosy.engine.ps.protocol.messages import read
from argosy.engine.ps.rpc.server import Handler, Request
from argosy.engine.ps.server.snapshots import Snapshots
from argosy.engine.ps.server.state import ServerState
from argosy.engine.ps.server.sync import DeferredRequests, Handle, LastPulled, StepCoordinator
from argosy.engine.ps.table.persistence import remove_other_saves, table_folder

_PROGRESS_S = 1.0
"""How often a save reports its progress."""


class PullHandlers:
    """Handlers of all requests that read the state, and of the initial values."""

    def __init__(
        self,
        plan: JobPlan,
        number: int,
        state: ServerState,
        snapshots: Snapshots,
        steps: StepCoordinator,
        deferred: DeferredRequests,
        last_pulled: LastPulled,
    ) -> None:
        self._plan, self._number, self._snapshots = plan, number, snapshots
        self._state, self._steps, self._deferred, self._last_pulled = state, steps, deferred, last_pulled
        self._marks: dict[tuple[int, str], int] = {}
        """geo: for each trainer and table, the clock of its last pull_changes."""
        self._saves: set[str] = set()
        """Saves that are not committed: their files stay."""
        self._lock = threading.Lock()

    def handlers(self) -> dict[str, Handler]:
        return {
            "initialise": Handler("send", self._initialise),
            "pull": Handler("get", self._pull, repeatable=True),
            "pull_rows": Handler("prefetch", self._pull_rows, repeatable=True),
            "pull_ids": Handler("get", self._pull_ids, repeatable=True),
            "pull_changes": Handler("get", self._pull_changes),
            "pull_state": Handler("get", self._pull_state, repeatable=True),
            "save": Handler("get", self._save),
            "commit_save": Handler("get", self._commit_save),
            "shared_init": Handler("get", self._send_shared_init, repeatable=True),
        }

    def begin(self, trainer: int) -> None:
        """geo: a trainer starts, without rows; it pulls the changes from now on."""
        for name, table in self._state.tables.items():
            self._marks[trainer, name] = table.clock()

    def _initialise(self, request: Request) -> None:
        message = read(messages.Initialise, request.meta)
        with self._lock:
            if not self._state.is_initialised:
                values = dict(zip([*message.blocks, *message.shared], request.tensors, strict=True))
                shared = {name: values.pop(name).clone() for name in message.shared}
                self._snapshots.initialise(self._state.shaped(values), shared)
        self._deferred.release()
        request.reply()

    def _send_shared_init(self, request: Request) -> None:
        read(messages.SharedInit, request.meta)

        def reply(request: Request) -> None:
            shared = self._state.shared_init
            request.reply({"names": list(shared)}, list(shared.values()))

        self._deferred.run_after(0, request, reply)

    def _pull(self, request: Request) -> None:
        message = read(messages.Pull, request.meta)
        self._state.blocks(message.blocks)  # reject unknown names now
        if not request.is_repeated:
            self._steps.count(message.steps)
        self._run_after(message.after, request, lambda request: self._reply_blocks(request, message.blocks))

    def _run_after(self, after: int, request: Request, handle: Handle) -> None:
        """Run once a step is done; outside of sync, once the server is initialised."""
        if self._plan.mode != "sync":
            after = 0
        self._steps.check_reachable(after, request)
        self._deferred.run_after(after, request, handle)

    def _reply_blocks(self, request: Request, blocks: list[str]) -> None:
        is_copied = self._state.keeps_log or self._plan.compensation is not None

        def read_blocks() -> list[Tensor]:
            if self._state.staleness is not None:
                self._state.staleness.note_pull(request.trainer, blocks)
            values = [value.detach() for value in self._state.blocks(blocks).values()]
            return [value.clone() for value in values] if is_copied else values

        def reply(values: list[Tensor]) -> None:
            if self._plan.compensation is not None:
                self._last_pulled.update(
                    {(request.trainer, name): copy for name, copy in zip(blocks, values, strict=True)}
                )
            request.reply({"steps": self._steps.done}, values)

        self._state.read(blocks, read_blocks, reply)

    def _pull_rows(self, request: Request) -> None:
        message = read(messages.PullRows, request.meta)
        table, (ids,) = self._state.table(message.table), request.tensors

        def read_rows() -> Tensor:
            if self._state.staleness is not None:
                self._state.staleness.note_pull(request.trainer, [message.table])
            return table.pull(ids, message.create)

        self._run_after(
            message.after,
            request,
            lambda request: self._state.read(
                [message.table], read_rows, lambda rows: request.reply({}, [rows])
            ),
        )

    def _pull_ids(self, request: Request) -> None:
        message = read(messages.PullIds, request.meta)
        table = self._state.table(message.table)
        if len(table) > message.most:
            raise ConfigError(
                f"the table {message.table!r} has {len(table):,} rows on server {self._number}, more than the "
                f"{message.most:,} that a model of one process may have; use fleet.save_persistables and "
                "DistributedInfer"
            )
        request.reply({}, [table.ids()])

    def _pull_changes(self, request: Request) -> None:
        message = read(messages.PullChanges, request.meta)
        key = (request.trainer, message.table)
        table, since = self._state.table(message.table), self._marks.get(key, 0)

        def reply(changed: tuple[Tensor, Tensor, int]) -> None:
            ids, rows, self._marks[key] = changed
            request.reply({}, [ids, rows])

        def read_changes() -> tuple[Tensor, Tensor, int]:
            if self._state.staleness is not None:
                self._state.staleness.note_pull(request.trainer, [message.table])
            return table.changed_since(since)

        self._state.read([message.table], read_changes, reply)

    def _pull_state(self, request: Request) -> None:
        read(messages.PullState, request.meta)
        state = self._state.updater.state()
        meta = {"names": list(state), "origins": self._state.updater.origins()}

        def read_all() -> list[Tensor]:
            values = [value.detach() for value in state.values()]
            return [value.clone() for value in values] if self._state.keeps_log else values

        self._state.read(self._state.updater.values(), read_all, lambda values: request.reply(meta, values))

    def _save(self, request: Request) -> None:
        message = read(messages.Save, request.meta)
        with self._lock:
            self._saves.add(message.save)
        sums: dict[str, int] = {}
        for name, table in self._state.tables.items():
            directory = table_folder(Path(message.directory), name)
            directory.mkdir(parents=True, exist_ok=True)
            path = table.save_text(directory, self._number, message.save, _progress_callback(request, name))
            sums |= {
                f"{directory.name}/{file.name}": checksum_of(file)
                for file in (path, path.with_suffix(".meta"))
            }
        request.reply({"files": sums})

    def _commit_save(self, request: Request) -> None:
        message = read(messages.CommitSave, request.meta)
        with self._lock:
            self._saves.discard(message.save)
            current = {message.save, *self._saves}
        for name in self._state.tables:
            remove_other_saves(table_folder(Path(message.directory), name), name, self._owns_shard, current)
        request.reply()

    def _owns_shard(self, shard: int) -> bool:
        """Whether this server removes the files of a shard: server 0 also of shards beyond the current servers."""
        return shard == self._number or (self._number == 0 and shard >= len(self._plan.endpoints))


def _progress_callback(request: Request, table: str) -> Callable[[int], None]:
    """Reports the progress of saving a table every second, so that the trainer's deadline is extended."""
    reported_at = time.monotonic()

    def report(rows: int) -> None:
        nonlocal reported_at
        if time.monotonic() - reported_at > _PROGRESS_S:
            reported_at = time.monotonic()
            request.progress(f"has written {rows} rows of {table}")

    return report
