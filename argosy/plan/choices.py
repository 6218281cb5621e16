"""Print the settings of a search: the best with their reasons and the lines to paste, or what one switch would do."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from argosy.distributed.auto.search import SAME, Candidate, Search
from argosy.distributed.auto.setting import BUCKETS_MB, Setting
from argosy.engine.errors import ConfigError
from argosy.engine.planner.topology import Topology

_WIDE = 140  # columns, without a terminal
_VALUES: dict[str, Sequence[Any]] = {
    "bucket_mb": BUCKETS_MB,
    "overlap": (False, True),
    "communicators": (1, 2, 4),
    "hierarchical": ("", "reduce_scatter", "leaders"),
    "divides_updates": (False, True),
    "sharding": (False, True),
    "wire_dtype": ("", "bfloat16"),
    "recompute": (False, True),
}


@dataclass(frozen=True)
class Choice:
    """A candidate on one of the clusters, with one of the batch sizes."""

    candidate: Candidate
    topology: Topology
    examples: int
    """Per rank."""
    fits: bool
    """Its memory is within the limit."""
    epoch_s: float
    host_hours: float
    """Of an epoch."""
    cost: float

    @property
    def step_ms(self) -> float:
        return self.candidate.prediction.step_ms

    @property
    def examples_per_s(self) -> float:
        return self.candidate.prediction.examples_per_s

    def to_data(self, given: Setting) -> dict[str, Any]:
        """For JSON."""
        setting, prediction = self.candidate.setting, self.candidate.prediction
        memory = prediction.memory
        return {
            "setting": {field.name: getattr(setting, field.name) for field in fields(setting)},
            "lines": setting.lines(given),
            "ranks_per_host": self.topology.num_ranks // self.topology.num_hosts,
            "examples_per_rank": self.examples,
            "step_ms": prediction.step_ms,
            "low_ms": prediction.low_ms,
            "high_ms": prediction.high_ms,
            "exposed_ms": prediction.exposed_ms,
            "examples_per_s": prediction.examples_per_s,
            "peak_bytes": memory.peak_bytes if memory else 0,
            "fits": self.fits,
            "epoch_s": self.epoch_s,
            "host_hours": self.host_hours,
            "cost": self.cost,
            "bound": prediction.bound,
        }


def show(found: Sequence[Choice], given: Setting, top: int) -> None:
    """Print a table of the best, and what to paste for the first."""
    console = _console()
    table = Table(
        title="predicted settings, the best first",
        title_justify="left",
        title_style="bold",
        box=_box(console),
    )
    for column in ("", "setting", "ranks/host", "batch", "step ms", "examples/s", "exposed ms", "memory MB"):
        table.add_column(column, justify="left" if column in ("", "setting") else "right")
    has_epochs = any(choice.epoch_s for choice in found)
    if has_epochs:
        for column in ("epoch min", "host hours", "cost"):
            table.add_column(column, justify="right")
    shown = [*found[:top], *(c for c in found[top:] if c.candidate.setting == given)][: top + 1]
    for choice in shown:
        table.add_row(*_row(found.index(choice) + 1, choice, given, has_epochs))
    console.print(table)
    for choice in shown:
        place, bound = found.index(choice) + 1, choice.candidate.prediction.bound
        console.print(f"{place}: {bound}", markup=False, highlight=False, soft_wrap=True)
    best = found[0]
    lines = best.candidate.setting.lines(given)
    console.print(
        "\nTo use the first:" if lines else "\nThe script has the best of these settings.", markup=False
    )
    for line in lines:
        console.print(f"    {line}", markup=False, highlight=False, soft_wrap=True)
    if not best.fits:
        console.print(
            "No setting fits into --memory-mb; use a smaller batch, or more ranks with sharding.",
            markup=False,
        )


def _row(place: int, choice: Choice, given: Setting, has_epochs: bool) -> list[str]:
    prediction, topology = choice.candidate.prediction, choice.topology
    memory = f"{prediction.memory.peak_bytes / 2**20:,.0f}" if prediction.memory else ""
    mark = " (the script's)" if choice.candidate.setting == given else ""
    row = [
        str(place),
        choice.candidate.setting.text() + mark,
        str(topology.num_ranks // topology.num_hosts),
        str(choice.examples or ""),
        f"{prediction.step_ms:.1f} ({prediction.low_ms:.1f} to {prediction.high_ms:.1f})",
        f"{choice.examples_per_s:,.0f}",
        f"{prediction.exposed_ms:.1f}",
        memory + ("" if choice.fits else " too much"),
    ]
    if has_epochs:
        row += [
            f"{choice.epoch_s / 60:.1f}",
            f"{choice.host_hours:.2f}",
            f"{choice.cost:.2f}" if choice.cost else "",
        ]
    return row


def explain(search: Search, name: str, switch: str) -> None:
    """Print what each value of one switch would do to the script's setting; raises ConfigError if none can be set."""
    given = search.template.setting
    console = _console()
    now = search.predicted(given)
    if now is None:
        raise ConfigError(f"the setting of the script does not fit the cluster: {search.rejected[given]}")
    table = Table(
        title=f"{switch}, all else as in the script",
        title_justify="left",
        title_style="bold",
        box=_box(console),
    )
    for column in ("setting", "step ms", "against the script", "exposed ms", "what bounds it"):
        table.add_column(column, justify="left" if column in ("setting", "what bounds it") else "right")
    for value in dict.fromkeys((getattr(given, name), *_VALUES[name])):
        setting = replace(given, **{name: value})
        found = search.predicted(setting)
        if found is None:
            table.add_row(
                setting.text(), "", "", "", search.rejected.get(setting, "the same step as another one")
            )
            continue
        p = found.prediction
        ratio = now.prediction.step_ms / p.step_ms
        text = "the script's" if setting == given else _verdict(ratio)
        table.add_row(setting.text(), f"{p.step_ms:.1f}", text, f"{p.exposed_ms:.1f}", p.bound)
    console.print(table)


def _verdict(ratio: float) -> str:
    if abs(ratio - 1) < SAME:
        return "equal"
    return f"{ratio - 1:.0%} faster" if ratio > 1 else f"{1 / ratio - 1:.0%} slower"


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=_WIDE)


def _box(console: Console) -> box.Box:
    return box.SIMPLE_HEAD if console.is_terminal else box.ASCII
