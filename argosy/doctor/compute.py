"""How fast a rank computes: GFLOPS of a matrix product; bytes per second of a copy. All ranks measure together."""

# SPDX-License-Identifier: Apache-2.0
import time
from collections.abc import Callable, Sequence
from statistics import median

import torch

from argosy.doctor.check import Check, Status

SECONDS = 0.4
"""For each measurement; the best round counts."""
STRAGGLER = 0.6
"""A rank below this fraction of the median of all ranks makes the others wait: a warning."""
SLOW_BF16 = 0.5
"""bf16 products slower than this fraction of float32 make mixed precision slower: a warning."""
COPY_BYTES = 16 << 20
_SIZES = (2048, 1024, 512, 256)


def best_of(run: Callable[[], object], rounds: int) -> float:
    """The shortest duration of exactly so many rounds, after one that does not count: for collectives."""
    run()
    return min(_seconds(run) for _ in range(rounds))


def best_within(run: Callable[[], object], budget_s: float) -> float:
    """The shortest duration of the rounds that fit into the budget, three at least."""
    best, until = best_of(run, 3), time.perf_counter() + budget_s
    while time.perf_counter() < until:
        best = min(best, _seconds(run))
    return best


def _seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def gflops(dtype: torch.dtype, budget_s: float = SECONDS) -> float:
    """Of a product of square matrices, the largest that takes a fraction of the budget."""
    trial = torch.ones(_SIZES[-1], _SIZES[-1], dtype=dtype)
    trial_s = best_within(lambda: trial @ trial, budget_s / 10)
    size = next((n for n in _SIZES if trial_s * (n / _SIZES[-1]) ** 3 < budget_s / 5), _SIZES[-1])
    a, b, out = (torch.ones(size, size, dtype=dtype) for _ in range(3))
    return 2e-9 * size**3 / best_within(lambda: torch.mm(a, b, out=out), budget_s)


def copy_rate(nbytes: int = COPY_BYTES, budget_s: float = SECONDS) -> float:
    """Bytes per second that this rank copies from memory to memory; all ranks of the host copy at the same time."""
    source, target = (torch.ones(nbytes // 4) for _ in range(2))
    return nbytes / best_within(lambda: target.copy_(source), budget_s)


def judge(float32: Sequence[float], bfloat16: Sequence[float], names: Sequence[str]) -> list[Check]:
    """A line for each rank. `names`: of the ranks, with their hosts."""
    checks = []
    for kind, rates in (("float32", float32), ("bf16", bfloat16)):
        usual = median(rates)
        for rank, (rate, name) in enumerate(zip(rates, names, strict=True)):
            figure, advice = f"{rate:.3g} GFLOPS", ""
            status: Status = "ok"
            if rate < STRAGGLER * usual:
                figure += f"; the median of the ranks is {usual:.3g}"
                status = "warning"
                advice = "all others wait for it: look for other processes, throttling, OMP_NUM_THREADS"
            elif kind == "bf16" and rate < SLOW_BF16 * float32[rank]:
                status = "warning"
                advice = (
                    "mixed precision in bf16 is slower than float32 on this CPU: use float32, or a CPU with bf16 "
                    "instructions"
                )
            checks.append(Check(f"product in {kind}", status, figure, advice, rate, "GFLOPS", name))
    return checks
