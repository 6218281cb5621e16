"""Which of several kernels an op runs: by measurement on this machine, else by a rule.

    best(key, alternatives, arguments, rule)
      ├─ asked before?                  the same answer: one look into a dictionary
      ├─ in the file?                   what was measured here once
      ├─ searching, and time is left?   measure now, keep the best here and in the file
      └─ else                           rule(*arguments)

Alternatives compute the same within rounding and change nothing but their result. Searching is off unless the user asks
for it (FLAGS_cudnn_exhaustive_search, docs/kernel_search.md).
"""

# SPDX-License-Identifier: Apache-2.0
import functools
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import torch

from argosy.engine import env
from argosy.engine.kernels import choices_file
from argosy.engine.kernels.choices_file import Entry
from argosy.engine.kernels.search import Alternatives, measured
from argosy.engine.log import logger

FLAG = "FLAGS_cudnn_exhaustive_search"
_BUDGET_S = 30.0
_CLEARLY = 0.95
"""What the rule says stays unless another one takes less than this share of its time: the rest is noise."""
Key = tuple[Hashable, ...]
"""The op's name, the sizes, the numbers and the dtypes that its time depends on."""


class Choices:
    """The choices of one process."""

    def __init__(self, folder: Path, budget_s: float, is_searching: bool = False) -> None:
        self.folder = folder
        self.budget_s = budget_s
        self.is_searching = is_searching
        self.spent_s = 0.0
        self._answers: dict[Key, str] = {}
        self._tables: dict[int, dict[str, Entry]] = {}
        self._writes = True

    def best(
        self, key: Key, alternatives: Alternatives, arguments: tuple[Any, ...], rule: Callable[..., str]
    ) -> str:
        """The name of the alternative to run on these arguments."""
        asked = (torch.get_num_threads(), *key)
        found = self._answers.get(asked)
        if found is None:
            found = self._answers[asked] = self._decided(asked, alternatives, arguments, rule)
        return found

    def search(self, is_searching: bool) -> None:
        """Search from now on, or stop it; what a rule has answered so far is asked again."""
        if is_searching != self.is_searching:
            self.is_searching = is_searching
            self._answers.clear()

    def _decided(
        self, asked: Key, alternatives: Alternatives, arguments: tuple[Any, ...], rule: Callable[..., str]
    ) -> str:
        threads, *parts = asked
        assert isinstance(threads, int), threads
        name, table = in_words(parts), self._table(threads)
        known = table[name]["best"] if name in table else None
        if known in alternatives:
            return str(known)
        if not self.is_searching or self.spent_s >= self.budget_s:
            return rule(*arguments)
        began, ruled = time.perf_counter(), rule(*arguments)
        ms = {n: round(1000 * s, 4) for n, s in measured(alternatives, arguments).items()}
        best = min(ms, key=lambda n: ms[n] * (_CLEARLY if n == ruled else 1))
        table[name] = {"best": best, "ms": ms}
        self._keep(threads, name)
        self._tell(name, threads, time.perf_counter() - began)
        return best

    def _table(self, threads: int) -> dict[str, Entry]:
        if threads not in self._tables:
            path = self.folder / choices_file.file_name(threads)
            self._tables[threads] = choices_file.read(path)
            logger.info("kernel choices: %d known from %s", len(self._tables[threads]), path)
        return self._tables[threads]

    def _keep(self, threads: int, name: str) -> None:
        if not self._writes:
            return
        path = self.folder / choices_file.file_name(threads)
        try:
            choices_file.add(path, {name: self._tables[threads][name]})
        except OSError as e:
            self._writes = False
            logger.warning("kernel choices cannot be kept for the next start: %s; set ARGOSY_CACHE", e)

    def _tell(self, name: str, threads: int, took_s: float) -> None:
        self.spent_s += took_s
        ms = sorted(self._tables[threads][name]["ms"].items(), key=lambda item: item[1])
        times = ", ".join(f"{one} {time_ms:.3g} ms" for one, time_ms in ms)
        logger.info("kernel search: %s: %s (%.1f of %g s used)", name, times, self.spent_s, self.budget_s)
        if self.spent_s >= self.budget_s:
            logger.info(
                "kernel search: %g s are used up (ARGOSY_SEARCH_S); what is not known yet goes by rule",
                self.budget_s,
            )


def in_words(key: list[Hashable]) -> str:
    """conv2d, 8x64x56x56, 64x64x3x3, 1x1, 1x1, float32: the key as it stands in the file."""
    return ", ".join(_word(part) for part in key)


def _word(part: Hashable) -> str:
    return "x".join(str(n) for n in part) if isinstance(part, tuple) else str(part).removeprefix("torch.")


@functools.cache
def of_process() -> Choices:
    """The choices of this process, as the environment wants them."""
    return Choices(
        env.cache_dir() / "choices", env.seconds("ARGOSY_SEARCH_S", _BUDGET_S), env.flag(FLAG, default=False)
    )


def best(key: Key, alternatives: Alternatives, arguments: tuple[Any, ...], rule: Callable[..., str]) -> str:
    """The name of the alternative to run on these arguments, by the choices of this process."""
    return of_process().best(key, alternatives, arguments, rule)
