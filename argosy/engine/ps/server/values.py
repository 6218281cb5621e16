"""What trainers get from a server: blocks and rows, once the step is done that they ask for; and all there is."""

# SPDX-License-Identifier: Apache-2.0
import threading
import time
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from argosy.engine.ps import messages
from argosy.engine.ps.messages import read
from argosy.engine.ps.plan import Plan
from argosy.engine.ps.rpc.listener import Handler, Request
from argosy.engine.ps.server.held import Handle, Held
from argosy.engine.ps.server.state import State
from argosy.engine.ps.server.steps import Steps

Pulled = dict[tuple[int, str], Tensor]
"""What each trainer has pulled last of each block: DC-ASGD compensates for what has changed since."""


_TELL_S = 1.0


class Values:
    """Reads, and the first values."""

    def __init__(
        self, plan: Plan, number: int, state: State, steps: Steps, held: Held, pulled: Pulled
    ) -> None:
        self._plan, self._number = plan, number
        self._state, self._steps, self._held, self._pulled = state, steps, held, pulled
        self._marks: dict[tuple[int, str], int] = {}
        """geo: up to where each trainer knows the changes of each table."""
        self._lock = threading.Lock()

    def handlers(self) -> dict[str, Handler]:
        return {
            "initialise": Handler("send", self._initialise),
            "pull": Handler("get", self._pull, repeatable=True),
            "pull_rows": Handler("prefetch", self._pull_rows, repeatable=True),
            "pull_changes": Handler("get", self._pull_changes),
            "state": Handler("get", self._answer_state, repeatable=True),
            "save": Handler("get", self._save),
            "kept": Handler("get", self._answer_kept, repeatable=True),
        }

    def begin(self, trainer: int) -> None:
        """geo: a trainer begins, without rows; what changes from now on is news to it."""
        for name, table in self._state.tables.items():
            self._marks[trainer, name] = table.clock()

    def _initialise(self, request: Request) -> None:
        message = read(messages.Initialise, request.meta)
        with self._lock:
            if not self._state.is_initialised:
                values = dict(zip([*message.blocks, *message.kept], request.tensors, strict=True))
                kept = {name: values.pop(name).clone() for name in message.kept}
                self._state.initialise(values, kept)
        self._held.release()
        request.answer()

    def _answer_kept(self, request: Request) -> None:
        read(messages.Kept, request.meta)

        def answer(held: Request) -> None:
            kept = self._state.kept
            held.answer({"names": list(kept)}, list(kept.values()))

        self._held.when(0, request, answer)

    def _pull(self, request: Request) -> None:
        message = read(messages.Pull, request.meta)
        self._state.blocks(message.blocks)  # wrong names are told now
        if not request.is_repeated:
            self._steps.count(message.steps)
        self._when(message.after, request, lambda held: self._answer_blocks(held, message.blocks))

    def _when(self, after: int, request: Request, answer: Handle) -> None:
        """Answer once a step is done; only under sync does it matter which, else it is enough that there are values."""
        self._held.when(after if self._plan.mode == "sync" else 0, request, answer)

    def _answer_blocks(self, request: Request, blocks: list[str]) -> None:
        found = [value.detach() for value in self._state.blocks(blocks).values()]
        if self._plan.compensation is not None:
            found = [value.clone() for value in found]
            self._pulled.update(
                {(request.trainer, name): copy for name, copy in zip(blocks, found, strict=True)}
            )
        request.answer({"steps": self._steps.done}, found)

    def _pull_rows(self, request: Request) -> None:
        message = read(messages.PullRows, request.meta)
        table, (ids,) = self._state.table(message.table), request.tensors
        self._when(message.after, request, lambda held: held.answer({}, [table.pull(ids, message.create)]))

    def _pull_changes(self, request: Request) -> None:
        message = read(messages.PullChanges, request.meta)
        key = (request.trainer, message.table)
        since = self._marks.get(key, 0)
        ids, rows, self._marks[key] = self._state.table(message.table).changed_since(since)
        request.answer({}, [ids, rows])

    def _answer_state(self, request: Request) -> None:
        read(messages.State, request.meta)
        state = self._state.updater.state()
        meta = {"names": list(state), "origins": self._state.updater.origins()}
        request.answer(meta, [value.detach() for value in state.values()])

    def _save(self, request: Request) -> None:
        message = read(messages.Save, request.meta)
        for name, table in self._state.tables.items():
            directory = Path(message.directory) / f"{name}_txt"
            directory.mkdir(parents=True, exist_ok=True)
            table.save_text(directory, self._number, _teller(request, name))
        request.answer()


def _teller(request: Request, table: str) -> Callable[[int], None]:
    """Says every second how far the saving of a table is, so that the trainer goes on waiting."""
    told = time.monotonic()

    def tell(rows: int) -> None:
        nonlocal told
        if time.monotonic() - told > _TELL_S:
            told = time.monotonic()
            request.tell(f"has written {rows} rows of {table}")

    return tell
