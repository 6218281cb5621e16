"""Progress of a training loop: a bar on a terminal, plain lines everywhere else."""

# SPDX-License-Identifier: Apache-2.0
import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

T = TypeVar("T")


class TrainingProgress:
    """Iterates over batches and shows the progress of training.

        progress = TrainingProgress(print_every=5)
        for batch_id, data in progress.batches(loader(), "Epoch 0", total=70):
            progress.line(batch_id, "[Epoch 0, batch 0] loss: …")

    On a terminal the line is shown beside the bar; elsewhere every `print_every`-th line is printed.
    """

    def __init__(self, print_every: int = 5) -> None:
        self.print_every = print_every
        self.console = Console()
        self.on_terminal = sys.stdout.isatty()
        self._bar: Progress | None = None

    def batches(
        self, source: Iterable[T], description: str, total: int | None = None
    ) -> Iterator[tuple[int, T]]:
        """Enumerate the batches under a bar."""
        if not self.on_terminal:
            yield from enumerate(source)
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self.console) as self._bar:
            task = self._bar.add_task(description, total=total)
            for number, batch in enumerate(source):
                yield number, batch
                self._bar.advance(task)
        self._bar = None

    def line(self, batch_id: int, text: str) -> None:
        """Show the state after a batch."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[-1], description=text)
        elif batch_id % self.print_every == 0:
            print(text, flush=True)
