"""Kernel selection (autotuning): by measurement on this machine, else by a rule.

    best(key, alternatives, arguments, rule)
      ├─ in the cache?                   a dictionary lookup
      ├─ in the checkpoint?              chosen by the process that this one resumes
      ├─ in the file?                    measured on this machine before
      ├─ searching, and budget left?     measure now, store the best in the cache and in the file
      └─ else                            rule(*arguments); the background search measures it for later processes

Alternatives compute the same result within rounding and have no side effects. A process reads the file once, and never
changes a choice unless FLAGS_cudnn_exhaustive_search is set. See docs/how-to/kernel-search.md.
"""

# SPDX-License-Identifier: Apache-2.0
import functools
import math
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import torch

from argosy.engine import env
from argosy.engine.kernels import choices_file
from argosy.engine.kernels.background_search import Alternatives, BackgroundSearch, Times, Trial
from argosy.engine.kernels.choices_file import Entry
from argosy.engine.log import logger

FLAG = "FLAGS_cudnn_exhaustive_search"
_BUDGET_S = 30.0
_NOISE_MARGIN = 0.95
"""An alternative replaces the rule's choice only if it takes less than this fraction of its time."""
_BACKGROUND_MARGIN = 0.85
"""The same for the background search: its few single runs between other nodes of a step are noisier."""
_ROUNDS = 5
_MIN_TOTAL_S = 0.03
"""A fast kernel is repeated for at least this long: a few runs of microseconds are too noisy."""
_MAX_SLOWDOWN = 2.0
"""An alternative that is this many times slower than the best after the first rounds is not repeated."""
Key = tuple[Hashable, ...]
"""The op's name, sizes, numbers and dtypes that its time depends on."""


class Choices:
    """The kernel choices of one process."""

    def __init__(
        self, folder: Path, budget_s: float, is_searching: bool = False, in_background: bool = False
    ) -> None:
        self.folder = folder
        self.budget_s = budget_s
        self.is_searching = is_searching
        self.spent_s = 0.0
        self._cache: dict[Key, str] = {}
        self._tables: dict[int, dict[str, Entry]] = {}
        self._restored: dict[tuple[int, str], str] = {}
        """By threads and key: the choices of a checkpoint."""
        self.background = BackgroundSearch(budget_s, self._store_trial) if in_background else None
        self._writes = True

    def best(
        self, key: Key, alternatives: Alternatives, arguments: tuple[Any, ...], rule: Callable[..., str]
    ) -> str:
        """The name of the alternative to run on these arguments."""
        full_key = (torch.get_num_threads(), *key)
        name = self._cache.get(full_key)
        if name is None:
            name = self._cache[full_key] = self._choose(full_key, alternatives, arguments, rule)
        elif self.background is not None and full_key in self.background.trials:
            self.background.visit(full_key, alternatives, arguments)
        return name

    def search(self, is_searching: bool) -> None:
        """Start or stop searching; clears the cache, so that choices made by rules are made again."""
        if is_searching != self.is_searching:
            self.is_searching = is_searching
            self._cache.clear()

    def state(self) -> list[list[Any]]:
        """[threads, key, name] of every choice of this process, for a checkpoint."""
        return [[threads, key_text(key), name] for (threads, *key), name in self._cache.items()]

    def restore(self, state: list[list[Any]]) -> None:
        """Choose as the process of a checkpoint did, so that training resumes bit for bit."""
        self._restored = {(threads, key): name for threads, key, name in state}
        self._cache.clear()

    def _choose(
        self, full_key: Key, alternatives: Alternatives, arguments: tuple[Any, ...], rule: Callable[..., str]
    ) -> str:
        threads, *parts = full_key
        assert isinstance(threads, int), threads
        name, table = key_text(parts), self._table(threads)
        restored = self._restored.get((threads, name))
        if restored in alternatives:
            return str(restored)
        known = _fastest(table.get(name), alternatives)
        if known is None or not _covers(table[name], alternatives):
            if self.is_searching and self.spent_s < self.budget_s:
                return self._search(threads, name, alternatives, arguments, rule(*arguments))
            if self.background is not None and len(alternatives) > 1:
                self.background.add(full_key, rule(*arguments))
        return known or rule(*arguments)

    def _search(
        self, threads: int, name: str, alternatives: Alternatives, arguments: tuple[Any, ...], default: str
    ) -> str:
        began, table = time.perf_counter(), self._table(threads)
        table[name] = _entry(measured(alternatives, arguments), default)
        self._store(threads, name, table[name])
        self._log(name, threads, time.perf_counter() - began)
        return str(table[name]["best"])

    def _store_trial(self, full_key: Key, trial: Trial) -> None:
        """Store what the background search measured, for later processes."""
        threads, *parts = full_key
        assert isinstance(threads, int), threads
        name, entry = key_text(parts), _entry(trial.best, trial.default, _BACKGROUND_MARGIN)
        self._store(threads, name, entry, replaces=False)
        logger.info("background kernel search: %s: %s", name, _times_text(entry))

    def _table(self, threads: int) -> dict[str, Entry]:
        if threads not in self._tables:
            path = self.folder / choices_file.file_name(threads)
            self._tables[threads] = choices_file.read(path)
            logger.info("kernel choices: %d known from %s", len(self._tables[threads]), path)
        return self._tables[threads]

    def _store(self, threads: int, name: str, entry: Entry, replaces: bool = True) -> None:
        if not self._writes:
            return
        path = self.folder / choices_file.file_name(threads)
        try:
            choices_file.add(path, {name: entry}, replaces)
        except OSError as e:
            self._writes = False
            logger.warning("kernel choices cannot be stored for the next start: %s; set ARGOSY_CACHE", e)

    def _log(self, name: str, threads: int, elapsed_s: float) -> None:
        self.spent_s += elapsed_s
        times = _times_text(self._tables[threads][name])
        logger.info("kernel search: %s: %s (%.1f of %g s used)", name, times, self.spent_s, self.budget_s)
        if self.spent_s >= self.budget_s:
            logger.info(
                "kernel search: the budget of %g s is used up (ARGOSY_SEARCH_S); other kernels are chosen by rule",
                self.budget_s,
            )


def _entry(seconds: Times, default: str, margin: float = _NOISE_MARGIN) -> Entry:
    """The best alternative; another one than the rule's only if it is faster by more than noise."""
    ms = {n: round(1000 * s, 4) for n, s in seconds.items()}
    return {"best": min(ms, key=lambda n: ms[n] * (margin if n == default else 1)), "ms": ms}


def _fastest(entry: Entry | None, alternatives: Alternatives) -> str | None:
    """The best of the alternatives by this measurement: some that were measured may be switched off now."""
    if entry is None:
        return None
    if entry["best"] in alternatives:
        return str(entry["best"])
    return min((n for n in entry["ms"] if n in alternatives), key=lambda n: entry["ms"][n], default=None)


def _covers(entry: Entry, alternatives: Alternatives) -> bool:
    """True unless there is an alternative that was not measured: of a newer Argosy, or switched on since."""
    return not entry["ms"] or alternatives.keys() <= entry["ms"].keys()


def _times_text(entry: Entry) -> str:
    ms = sorted(entry["ms"].items(), key=lambda item: item[1])
    return ", ".join(f"{alternative} {time_ms:.3g} ms" for alternative, time_ms in ms)


def measured(alternatives: Alternatives, arguments: tuple[Any, ...]) -> Times:
    """The best time of each alternative, in seconds; they run interleaved on the same arguments."""
    for run in alternatives.values():
        run(*arguments)  # warm up: allocate memory and create kernels before the first round
    best = dict.fromkeys(alternatives, math.inf)
    total = dict.fromkeys(alternatives, 0.0)
    for _ in range(_ROUNDS):
        _round(list(alternatives), alternatives, arguments, best, total)
    while names := [
        n for n in alternatives if total[n] < _MIN_TOTAL_S and best[n] < _MAX_SLOWDOWN * min(best.values())
    ]:
        _round(names, alternatives, arguments, best, total)
    return best


def _round(
    names: list[str],
    alternatives: Alternatives,
    arguments: tuple[Any, ...],
    best: dict[str, float],
    total: dict[str, float],
) -> None:
    for name in names:
        began = time.perf_counter()
        alternatives[name](*arguments)
        elapsed = time.perf_counter() - began
        best[name] = min(best[name], elapsed)
        total[name] += elapsed


def key_text(key: list[Hashable]) -> str:
    """conv2d, 8x64x56x56, 64x64x3x3, 1x1, 1x1, float32: the key as text, for the file."""
    return ", ".join(_word(part) for part in key)


def _word(part: Hashable) -> str:
    return "x".join(str(n) for n in part) if isinstance(part, tuple) else str(part).removeprefix("torch.")


@functools.cache
def of_process() -> Choices:
    """The choices of this process, configured by the environment."""
    return Choices(
        env.cache_dir() / "choices",
        env.seconds("ARGOSY_SEARCH_S", _BUDGET_S),
        is_searching=env.flag(FLAG, default=False),
        in_background=env.flag("ARGOSY_BACKGROUND_SEARCH", default=True),
    )


def best(key: Key, alternatives: Alternatives, arguments: tuple[Any, ...], rule: Callable[..., str]) -> str:
    """The name of the alternative to run on these arguments, by the choices of this process."""
    return of_process().best(key, alternatives, arguments, rule)
