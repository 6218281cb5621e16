"""Options of the two training scripts: pauses at which a test can kill or preempt a process.

--pids DIR       each process writes its pid to DIR/worker.R or DIR/server.R before the first step
--hold_at N      before step N (from 0) each worker creates DIR/worker.R.holding, and waits …
--hold_until F   … until the file F exists; a test that kills a process never creates it
--pause S        seconds to sleep after each step
--checkpoint D   save with fleet.Checkpoint in every step, and resume from the newest
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import argosy as paddle
from argosy.distributed import fleet

Batch = dict[str, np.ndarray[Any, Any]]


def parser(description: str | None) -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=description)
    p.add_argument("--weights", type=Path, default=Path("weights.npz"), help="worker 0 writes them there")
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--pids", type=Path, help="a directory for the files with pids")
    p.add_argument("--hold_at", type=int, help="wait before this step")
    p.add_argument("--hold_until", type=Path, help="until this file exists")
    p.add_argument("--pause", type=float, default=0.0, help="seconds to sleep after each step")
    p.add_argument("--checkpoint", help="a directory for checkpoints")
    return p


def write_pid(args: argparse.Namespace) -> None:
    """Write this process's pid to the file of its role."""
    if args.pids is not None:
        _create(_role_file(args), f"{os.getpid()}\n")


def steps(args: argparse.Namespace, batches: list[Batch], exe: Any) -> Iterator[Batch]:
    """The batches of this worker, with the pauses of the options; with --checkpoint, from the newest one on."""
    write_pid(args)
    if args.checkpoint:
        checkpoint = fleet.Checkpoint(args.checkpoint, every=1)
        numbered = ((number, batch) for _, number, batch in checkpoint.batches(batches, 1, exe))
    else:
        numbered = iter(enumerate(batches))
    for number, batch in numbered:
        if number == args.hold_at:
            _hold(args)
        yield batch
        time.sleep(args.pause)


def _hold(args: argparse.Namespace) -> None:
    if args.pids is not None:
        _create(_role_file(args).with_suffix(f".{fleet.worker_index()}.holding"), f"{args.hold_at}\n")
    while args.hold_until is None or not args.hold_until.exists():
        time.sleep(0.02)


def _role_file(args: argparse.Namespace) -> Path:
    role = f"server.{fleet.server_index()}" if fleet.is_server() else f"worker.{fleet.worker_index()}"
    return Path(args.pids) / role


def _create(path: Path, text: str) -> None:
    """Write a file atomically: a reader finds no part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_text(text)
    temporary.replace(path)


def save(path: Path, arrays: Batch) -> None:
    """Write the weights atomically."""
    temporary = path.with_name(f"{path.stem}.tmp.npz")
    np.savez(temporary, **arrays)
    temporary.replace(path)


def parameters() -> Batch:
    """The persistable variables that this process has: weights, statistics, state of the optimizer."""
    scope = paddle.static.global_scope()
    names = [v.name for v in paddle.static.default_main_program().list_vars() if v.persistable]
    variables = {name: scope.find_var(name) for name in names}
    return {name: np.array(v.get_tensor()) for name, v in variables.items() if v is not None}
