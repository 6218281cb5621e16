"""Plan a script: run it to its first training step, measure that step, and stop.

    the script ──▶ fleet's minimize ──▶ a template of the program ──▶ Executor.run(program, feed): node times, in place
                                                                      of training; the script ends with `Planned`

Used by the process that `python -m argosy.plan SCRIPT` starts, and in no other: it replaces `Executor.run`.
"""

# SPDX-License-Identifier: Apache-2.0
import runpy
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from argosy.distributed.auto.node_times import NodeTimes, fitted, measure
from argosy.distributed.auto.search import Search, Sizes
from argosy.distributed.auto.step_traces import update_bytes
from argosy.distributed.auto.template import Template
from argosy.distributed.fleet.base import fleet_base
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program, default_main_program
from argosy.engine.planner.topology import Topology
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.feeding import fed_by_name, fed_sizes
from argosy.engine.runtime.fetching import fetched_variables
from argosy.engine.runtime.step_metrics import num_examples

_POLL_S = 0.01
_PARTNER_S = 600.0


@dataclass(frozen=True)
class Partners:
    """Processes that run the same step at the same time, because ranks of a host compete for memory and caches."""

    directory: Path
    number: int = 0
    count: int = 1

    def wait_for_all(self) -> None:
        """Return when every process is about to run its first step."""
        (self.directory / f"ready{self.number}").touch()
        ends = time.monotonic() + _PARTNER_S
        while any(not (self.directory / f"ready{i}").exists() for i in range(self.count)):
            if time.monotonic() > ends:
                raise ConfigError(
                    f"the {self.count} processes did not reach their first step in {_PARTNER_S:.0f} s"
                )
            time.sleep(_POLL_S)

    def finish(self) -> None:
        """Let the others end."""
        (self.directory / "done").touch()

    @property
    def has_finished(self) -> bool:
        return (self.directory / "done").exists()


@dataclass(frozen=True)
class MeasuredScript:
    """What planning a script gives: its program, and the times of its nodes by batch size."""

    template: Template
    times: tuple[NodeTimes, ...]
    """The first is of the script's own batch."""
    fetches: tuple[str, ...]
    sizes: Sizes

    @property
    def examples(self) -> int:
        """The batch of the script."""
        return self.times[0].examples

    def times_for(self, examples: int) -> NodeTimes:
        """The node times of another batch size."""
        same = [one for one in self.times if one.examples == examples]
        return same[0] if same else fitted(self.times, examples)

    def search(self, topology: Topology, examples: int = 0, memory_bytes: int = 0) -> Search:
        """A search over the settings of this program on a cluster, with so many examples per rank."""
        examples = examples or self.examples
        factor = examples / self.examples if self.examples else 1.0
        sizes = {s: round(n * factor) if n == self.examples else n for s, n in self.sizes.items()}
        return Search(
            self.template, self.times_for(examples), topology, self.fetches, sizes, memory_bytes=memory_bytes
        )


class Planned(BaseException):
    """Ends the script: its step was measured. Not an Exception, so that the script does not handle it."""

    def __init__(self, measured: MeasuredScript) -> None:
        super().__init__("the training step was measured")
        self.measured = measured


def measure_script(
    script: str,
    arguments: Sequence[str],
    partners: Partners,
    batches: Sequence[int] = (),
    seconds: float = 5.0,
) -> MeasuredScript:
    """Run a script up to its first training step, and measure it; also at these batch sizes.

    What the script prints goes to stderr. Raises ConfigError if it trains no program of fleet.
    """
    old = sys.argv
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        with redirect_stdout(sys.stderr), _replaced_run(partners, tuple(batches), seconds):
            runpy.run_path(script, run_name="__main__")
    except Planned as planned:
        return planned.measured
    finally:
        sys.argv = old
    raise ConfigError(
        f"{script} ended without a training step of fleet; it must call fleet.distributed_optimizer(…).minimize(loss) "
        "and run the program"
    )


@contextmanager
def _replaced_run(partners: Partners, batches: tuple[int, ...], seconds: float) -> Iterator[None]:
    templates: WeakKeyDictionary[Program, Template] = WeakKeyDictionary()
    run = Executor.run

    def planned_run(
        self: Executor, program: Any = None, feed: Any = None, fetch_list: Any = None, **rest: Any
    ) -> Any:
        main = getattr(program, "program", program) or default_main_program()
        if main not in templates:
            return run(self, program, feed, fetch_list, **rest)

        def step(fed: Any = feed) -> None:
            run(self, program, fed, fetch_list, **rest)

        if partners.number:
            partners.wait_for_all()
            while not partners.has_finished:
                step()
            sys.exit(0)
        values = fed_by_name(main, feed)
        examples = num_examples(values)
        step()  # compiles
        partners.wait_for_all()
        times = [_measured(step, seconds, examples, partners.count)]
        for batch in batches:
            fed = _resized(values, examples, batch)
            times.append(_measured(lambda fed=fed: step(fed), seconds, batch, partners.count))
        partners.finish()
        fetches = tuple(v.name for v in fetched_variables(main, fetch_list))
        raise Planned(MeasuredScript(templates[main], tuple(times), fetches, fed_sizes(main, values)))

    Executor.run = planned_run  # type: ignore[method-assign,assignment]
    fleet_base.on_template = templates.__setitem__
    try:
        yield
    finally:
        Executor.run = run  # type: ignore[method-assign]
        fleet_base.on_template = None


def _measured(step: Any, seconds: float, examples: int, processes: int) -> NodeTimes:
    times, compiled = measure(step, seconds, examples=examples, processes=processes)
    return replace(times, update_bytes=update_bytes(compiled))


def _resized(values: Any, examples: int, batch: int) -> dict[str, Any]:
    """The feed with another number of examples: some of them, or some several times."""
    resized = {}
    for name, value in values.items():
        array = np.asarray(value) if not hasattr(value, "numpy") else value.numpy()
        if array.ndim == 0 or array.shape[0] != examples:
            raise ConfigError(
                f"the feed {name!r} has shape {list(array.shape)}, and a batch of {batch} cannot be made of it; its "
                f"first dimension must be the batch of {examples}"
            )
        resized[name] = np.resize(array, (batch, *array.shape[1:]))
    return resized
