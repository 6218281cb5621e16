"""Records of synthetic jobs: the noise of real machines, and a rank that becomes slow.

Noise of each rank: normally distributed, drifting, with heavy tails, pauses of the garbage collector, and other
processes that take a core for a few steps. Common to all ranks: batches of different length, checkpoints, evaluations,
warm-up.
"""

# SPDX-License-Identifier: Apache-2.0
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from argosy.engine.metrics.job_directory import Record

RECORD_S = 0.5


@dataclass(frozen=True)
class Noise:
    """Parts of a step's own time."""

    sigma: float = 0.02
    """Normally distributed, for every step and rank."""
    drift: float = 0.01
    """Lasts for some 30 steps."""
    batches: float = 0.1
    """The same on all ranks."""
    tails: float = 0.03
    """How often a step of a rank has a Pareto distributed delay, of 0.05 or more."""
    pause_every: int = 60
    """The garbage collector: 0.4 of a step."""
    burst_every: int = 250
    """Another process takes the core of a rank for 2 to 6 steps: 0.8 of a step."""
    checkpoint_every: int = 150
    """Rank 0 writes a file: 4 steps."""
    evaluate_every: int = 400
    """All ranks evaluate: 30 steps, with 0.2 between the ranks."""


@dataclass
class Job:
    """A synthetic job of ranks that wait for each other, or of asynchronous workers."""

    ranks: int
    seed: int
    noise: Noise = Noise()
    own_ms: float = 80.0
    outside: float = 0.1
    """The part of the own time between two steps."""
    collective_ms: float = 15.0
    is_async: bool = False
    group: int = 1
    slow: Callable[[int, int], dict[str, float]] = lambda rank, step: {}
    """(rank, step) ─▶ additional parts of its own time: `busy`, `input`, `outside`, `exposed`."""
    fields: Callable[[int, int], dict[str, Any]] = lambda rank, step: {}
    """Additional fields of the records of a rank."""

    def records(self, steps: int) -> Iterator[Record]:
        """The records, in the order of their times."""
        chance = random.Random(self.seed)
        times = [
            [self._step(chance, rank, step, drift) for step, drift in self._drifts(chance, steps)]
            for rank in range(self.ranks)
        ]
        common = [1 + chance.uniform(-self.noise.batches, self.noise.batches) for _ in range(steps)]
        evaluates = [chance.uniform(28, 32) if self._is_evaluated(step) else 0.0 for step in range(steps)]
        written: list[Record] = []
        clock = [0.0] * self.ranks
        due = [RECORD_S] * self.ranks
        pending: list[list[dict[str, float]]] = [[] for _ in range(self.ranks)]
        for rank in range(self.ranks):
            role = "worker" if self.is_async else "rank"
            written.append(
                self._record(
                    rank, "start", 0.0, role=role, rank=rank, size=self.ranks, host=f"host{rank // 4}"
                )
            )
        for step in range(steps):
            parts = []
            for rank in range(self.ranks):
                part = {name: self.own_ms * common[step] * value for name, value in times[rank][step].items()}
                part["outside"] += part["input"]
                part["outside"] += self.own_ms * evaluates[step] * chance.uniform(0.9, 1.1)
                parts.append(part)
            slowest = max(part["busy"] + part["outside"] for part in parts)
            for rank, part in enumerate(parts):
                own_ms = part["busy"] + part["outside"]
                exposed = self.collective_ms + part["exposed"]
                if not self.is_async:
                    exposed += slowest - own_ms
                part["exposed"], part["period"] = exposed, own_ms + exposed
                clock[rank] += part["period"] / 1000
                pending[rank].append(part)
                if clock[rank] >= due[rank] or step == steps - 1:
                    written.append(self._steps(rank, step + 1, clock[rank], pending[rank]))
                    pending[rank], due[rank] = [], clock[rank] + RECORD_S
        return iter(sorted(written, key=lambda record: record.time))

    def _is_evaluated(self, step: int) -> bool:
        return bool(step) and step % self.noise.evaluate_every == 0

    def _drifts(self, chance: random.Random, steps: int) -> Iterator[tuple[int, float]]:
        drift, burst = 0.0, -30
        for step in range(steps):
            drift = 0.97 * drift + chance.gauss(0, 0.243 * self.noise.drift)
            if burst <= -30 and chance.random() < 1 / self.noise.burst_every:
                burst = chance.randint(2, 6)
            burst -= 1
            yield step, drift + (0.8 if burst >= 0 else 0.0)

    def _step(self, chance: random.Random, rank: int, step: int, drift: float) -> dict[str, float]:
        noise = self.noise
        busy = 1 + drift + abs(chance.gauss(0, 1)) * 0.3 * noise.sigma + chance.gauss(0, noise.sigma)
        busy += 0.05 * chance.paretovariate(1.5) if chance.random() < noise.tails else 0.0
        busy += 0.4 if chance.random() < 1 / noise.pause_every else 0.0
        busy += chance.uniform(3, 30) if step == 0 else chance.uniform(0, 1) if step < 4 else 0.0
        outside = self.outside * chance.uniform(0.9, 1.1)
        if rank == 0 and step % noise.checkpoint_every == noise.checkpoint_every - 1:
            outside += 4.0
        parts = {"busy": busy - self.outside, "outside": outside, "input": 0.0, "exposed": 0.0}
        for name, value in self.slow(rank, step).items():
            parts[name] += value
        return parts

    def _steps(self, rank: int, step: int, time: float, parts: list[dict[str, float]]) -> Record:
        groups = [parts[i : i + self.group] for i in range(0, len(parts), self.group)]
        lists = {
            f"{name}_ms": [round(sum(part[name] for part in group) / len(group), 3) for group in groups]
            for name in ("period", "busy", "exposed", "outside", "input")
        }
        wall_s = sum(part["period"] for part in parts) / 1000
        fields = {
            "step": step,
            "steps": len(parts),
            "group": self.group,
            "wall_s": wall_s,
            "examples": 32 * len(parts),
            **lists,
        }
        fields |= {"cpu_s": sum(part["busy"] for part in parts) / 1000, "delay_s": 0.0}
        fields |= {"minor_faults": 0, "major_faults": 0}
        return self._record(rank, "steps", time, **(fields | self.fields(rank, step)))

    def _record(self, number: int, kind: str, time: float, **fields: Any) -> Record:
        return Record(f"rank{number}", kind, time, {"kind": kind, "time": time, **fields})
