"""Metrics of a training: logged values, watched fetches, callbacks.

    argosy.metrics.log(step=step, loss=loss, lr=0.1)     on any rank; the views show the mean over the ranks
    argosy.metrics.watch(loss)                           logs `loss` whenever exe.run fetches it
    argosy.metrics.add_callback(print)                   gets every record of this rank

fleetrun's views show them: the terminal, `--dashboard`, `--tensorboard`, `--metrics_port` and the report. The
records are in `log/metrics/rank0.jsonl`.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from argosy.engine.errors import ArgumentTypeError, ConfigError
from argosy.engine.ir.variable import Variable
from argosy.engine.metrics.metrics_recorder import recorder
from argosy.engine.runtime import watched_fetches

REDUCTIONS = ("mean", "min", "max", "last")


def log(step: int | None = None, reduce: str | Mapping[str, str] = "mean", **values: Any) -> None:
    """Log values of this rank: numbers, or arrays, of which the mean is logged.

    `step`: by default the number of training steps that this process has completed, with those before a checkpoint from
    which it has resumed. `reduce`: how the views combine the ranks that log a name in a step: "mean", "min", "max" or
    "last" (of the highest rank); one for all values, or a dict by name.
    """
    by_name = {name: reduce if isinstance(reduce, str) else reduce.get(name, "mean") for name in values}
    for name, how in by_name.items():
        _check_reduction(how, name)
    if unknown := sorted(set(reduce) - set(values)) if not isinstance(reduce, str) else []:
        raise ConfigError(
            f"metrics.log: reduce has {unknown[0]!r}, which is not among the values {sorted(values)}"
        )
    records = recorder()
    numbers = {name: _number(name, value) for name, value in values.items()}
    records.log(records.step if step is None else _step(step), numbers, by_name)


def watch(*fetches: Variable | str, reduce: str = "mean", **named: Variable | str) -> None:
    """Log these Variables, or names, whenever a training step fetches them.

    `watch(loss)` logs under the Variable's name, `watch(loss=mean_0)` under the name that is given. What no run fetches
    is not logged. After 512 steps every 2nd step is logged, after 1,024 every 4th, and so on.
    """
    _check_reduction(reduce, "watch")
    for name, fetch in (*((None, fetch) for fetch in fetches), *named.items()):
        if not isinstance(fetch, Variable | str):
            raise ArgumentTypeError(
                f"metrics.watch was given a {type(fetch).__name__}; give a Variable, or its name"
            )
        variable = fetch if isinstance(fetch, str) else fetch.name
        watched_fetches.watched[variable] = (name or variable, reduce)


def unwatch() -> None:
    """Stop watching all fetches."""
    watched_fetches.watched.clear()


def add_callback(callback: Callable[[dict[str, Any]], None]) -> Callable[[], None]:
    """Call a function with every record of this rank, also without fleetrun; returns a function that removes it.

    The records are described in docs/reference/job-directory.md. It runs in the training thread, and its exceptions end
    the training.
    """
    if not callable(callback):
        raise ArgumentTypeError(
            f"metrics.add_callback was given a {type(callback).__name__}; give a function"
        )
    callbacks = recorder().callbacks
    callbacks.append(callback)

    def remove() -> None:
        if callback in callbacks:
            callbacks.remove(callback)

    return remove


def progress(
    batch: int | None = None,
    batches: int | None = None,
    epoch: int | None = None,
    epochs: int | None = None,
    what: str = "",
) -> None:
    """Say how far the training is, for the remaining time that the views show.

    `batch` of `batches` are done in `epoch` (from 1) of `epochs`. Loaders of known length and `fleet.Checkpoint` do it
    themselves.
    """
    recorder().progress(batch, batches, epoch, epochs, what)


def _number(name: str, value: Any) -> float:
    if isinstance(value, np.ndarray | torch.Tensor | list | tuple):
        array = value if isinstance(value, torch.Tensor) else np.asarray(value)
        if (array.numel() if isinstance(array, torch.Tensor) else array.size) == 0:
            raise ConfigError(f"metrics.log: {name} is an empty array; log a number")
        return watched_fetches.mean(array.detach() if isinstance(array, torch.Tensor) else array)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ArgumentTypeError(
            f"metrics.log: {name} is a {type(value).__name__}; log a number or an array (fetch a Variable first)"
        ) from None


def _step(step: Any) -> int:
    if not isinstance(step, int | np.integer) or step < 0:
        raise ConfigError(f"metrics.log: step is {step!r}; give a number of steps, 0 or more")
    return int(step)


def _check_reduction(how: Any, name: str) -> None:
    if how not in REDUCTIONS:
        raise ConfigError(f"metrics: {name} is to be reduced by {how!r}; use one of {', '.join(REDUCTIONS)}")


__all__ = ["add_callback", "log", "progress", "unwatch", "watch"]
