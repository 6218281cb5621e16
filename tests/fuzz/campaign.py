"""Runs the children, notices how they end, and counts.

A child that ends by a signal, or by AddressSanitizer, or takes too long for a mutant, is replaced by one that continues
with the next mutant.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

TIMEOUT_S = 60.0
START_S = 240.0
"""A child builds its models, and perhaps the kernels, before the first mutant."""
GROWTH_MB = 256
BATCH = 5000
"""Mutants of one child: memory that torch keeps does not add up for ever."""
_OPTIONS = "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1:max_allocation_size_mb=4096"


@dataclass
class Figures:
    """What became of the mutants."""

    kinds: Counter[str] = field(default_factory=Counter)
    raw: Counter[str] = field(default_factory=Counter)
    crashes: dict[int, str] = field(default_factory=dict)
    timeouts: list[int] = field(default_factory=list)
    grown: dict[int, int] = field(default_factory=dict)
    """Mutant -> MB by which the child's memory grew, if it was much."""
    examples: dict[str, int] = field(default_factory=dict)
    """A raw error -> a mutant that has it."""

    def count(self) -> int:
        return sum(self.kinds.values())


def sanitizer() -> str | None:
    """libasan for LD_PRELOAD, and libstdc++, without which it cannot follow exceptions; None if there is no libasan."""
    command = ["g++", "-print-file-name=libasan.so", "-print-file-name=libstdc++.so.6"]
    paths = [
        subprocess.run([command[0], option], capture_output=True, text=True, check=False).stdout.strip()
        for option in command[1:]
    ]
    return " ".join(paths) if all(map(os.path.isabs, paths)) else None


def run(first: int, count: int, seed: int, is_sanitized: bool, until: float = float("inf")) -> Figures:
    """Judge the mutants `first` to `first + count - 1`, or fewer if the time is over."""
    figures, at = Figures(), first
    while at < first + count and time.monotonic() < until:
        at = _batch(at, min(at + BATCH, first + count), seed, is_sanitized, figures, until)
        print(f"{at - first} of {count}: {dict(figures.kinds)}", file=sys.stderr, flush=True)
    return figures


def _batch(first: int, stop: int, seed: int, is_sanitized: bool, figures: Figures, until: float) -> int:
    """Judge mutants with one child; returns the child for the next ones."""
    with tempfile.TemporaryFile("w+") as errors:
        child = _start(seed, is_sanitized, errors)
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(f"{first} {stop}\n")
            child.stdin.close()
            return _followed(child, child.stdout, first, stop, figures, errors, until)
        finally:
            child.kill()
            child.wait()
            child.stdout.close()


def _start(seed: int, is_sanitized: bool, errors: IO[str]) -> "subprocess.Popen[str]":
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "2"}
    if is_sanitized:
        environ |= {"LD_PRELOAD": sanitizer() or "", "ASAN_OPTIONS": _OPTIONS, "ARGOSY_SANITIZE": "1"}
    command = [sys.executable, "-m", "tests.fuzz.child", "--seed", str(seed)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environ
    )


def _followed(
    child: "subprocess.Popen[str]",
    lines: IO[str],
    first: int,
    stop: int,
    figures: Figures,
    errors: IO[str],
    until: float,
) -> int:
    current, limit = first, START_S
    with selectors.DefaultSelector() as selector:
        selector.register(lines, selectors.EVENT_READ)
        while selector.select(limit):
            line = lines.readline()
            if not line:
                assert limit == TIMEOUT_S, f"the child did not start: {_said(errors)[-2000:]}"
                return _ended(child, current, stop, figures, errors)
            record: dict[str, Any] = json.loads(line)
            if "begin" in record:
                current, limit = record["begin"], TIMEOUT_S
                continue
            _note(record, figures)
            current += 1
            if time.monotonic() > until:
                return current
    figures.kinds["timeout"] += 1
    figures.timeouts.append(current)
    return current + 1


def _note(record: dict[str, Any], figures: Figures) -> None:
    number, kind, detail = record["end"], record["kind"], record["detail"]
    figures.kinds[kind] += 1
    if kind == "raw":
        figures.raw[detail] += 1
        figures.examples.setdefault(detail, number)
    if record["grown"] > GROWTH_MB:
        figures.grown[number] = record["grown"]


def _ended(child: "subprocess.Popen[str]", current: int, stop: int, figures: Figures, errors: IO[str]) -> int:
    status = child.wait()
    if status == 0 and current == stop:
        return stop
    said = _said(errors)
    report = said.find("ERROR: AddressSanitizer")
    text = said[report : report + 1500] if report >= 0 else said[-600:]
    figures.kinds["crash" if status < 0 else "fuzzer failed"] += 1
    figures.crashes[current] = f"exit status {status}: {text}"
    return current + 1


def _said(errors: IO[str]) -> str:
    errors.seek(0)
    return errors.read()
