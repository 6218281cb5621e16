"""The headline benchmarks: which measurements of benchmarks/results they compare, always those of the newest date."""

# SPDX-License-Identifier: Apache-2.0
import json
import statistics
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@dataclass(frozen=True)
class Comparison:
    """One row: how many times as fast one contender of a case is as another."""

    label: str
    results: str
    """The name of the result file without its date."""
    case: str
    ours: str
    theirs: tuple[str, ...]
    """The contender to compare with; of several, the one that is best (for `best`) or has the best median."""

    @property
    def best(self) -> float:
        """The ratio of the best times."""
        return min(min(self._seconds(name)) for name in self.theirs) / min(self._seconds(self.ours))

    @property
    def median(self) -> float:
        """The ratio of the median times."""
        medians = [statistics.median(self._seconds(name)) for name in self.theirs]
        return min(medians) / statistics.median(self._seconds(self.ours))

    @property
    def date(self) -> str:
        """The date of the measurement."""
        return newest(self.results).name[:10]

    def _seconds(self, contender: str) -> list[float]:
        cases = read(newest(self.results))
        assert contender in cases[self.case], f"{self.results}, {self.case}: no contender {contender!r}"
        return list(cases[self.case][contender]["seconds"])


@dataclass(frozen=True)
class Plot:
    """One picture, docs/pictures/<name>.svg."""

    name: str
    title: str
    comparisons: tuple[Comparison, ...]


def newest(results: str) -> Path:
    """The newest result file of a benchmark."""
    files = sorted(RESULTS.glob(f"[0-9]*-[0-9][0-9]-[0-9][0-9]-{results}.json"))
    assert files, f"no results of {results} in {RESULTS}"
    return files[-1]


@cache
def read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


_DDP = tuple(f"DDP, buckets of {size} MB" for size in (1, 25, 100))
_EAGER = ("eager channels_last",)

STEP = Plot(
    "step",
    "Training step on one process, against torch",
    (
        *(
            Comparison(
                f"{label}, batch 8, against {other}",
                f"defaults-{net}",
                f"{net}, batch 8",
                "argosy",
                (contender,),
            )
            for net, label in (("resnet50", "ResNet50"), ("mobilenet", "MobileNetV1"))
            for other, contender in (("eager", "eager"), ("torch.compile", "torch.compile"))
        ),
        Comparison(
            "ResNet50, batch 16, against eager",
            "resnet50-step",
            "ResNet50, batch 16, 224 px",
            "argosy",
            _EAGER,
        ),
        Comparison(
            "MLP 784-256-128-10, batch 32, against eager",
            "mlp-step",
            "MLP 784-256-128-10, batch 32",
            "argosy",
            ("eager fused",),
        ),
        *(
            Comparison(
                f"{label}, batch 16, fused, against torch.compile",
                "fusion",
                f"{net}, batch 16, 224 px",
                "argosy, all fusions",
                ("torch.compile",),
            )
            for net, label in (("resnet50", "ResNet50"), ("mobilenet", "MobileNetV1"))
        ),
    ),
)
RANKS = Plot(
    "ranks",
    "ResNet50 step on several ranks, against DDP over gloo",
    (
        Comparison(
            "2 ranks on one host, batch 2, 64 px",
            "distributed-step-one-host",
            "ResNet50, 2 ranks on one host, batch 2 each, 64 px",
            "argosy",
            _DDP,
        ),
        Comparison(
            "2 ranks on one host, batch 8, 224 px",
            "distributed-step-one-host",
            "ResNet50, 2 ranks on one host, batch 8 each, 224 px",
            "argosy",
            _DDP,
        ),
        Comparison(
            "the same with overlap",
            "distributed-step-one-host",
            "ResNet50, 2 ranks on one host, batch 8 each, 224 px",
            "argosy, overlap",
            _DDP,
        ),
        Comparison(
            "2 hosts x 2 ranks, 1 Gbit/s, batch 8, 64 px, hierarchical, overlap",
            "distributed-step-two-hosts",
            "ResNet50, 2 hosts x 2 ranks, 1gbit, batch 8 each, 64 px",
            "argosy, hierarchical, overlap",
            _DDP,
        ),
    ),
)
ALL_REDUCE = Plot(
    "all-reduce",
    "All-reduce, against gloo",
    (
        *(
            Comparison(
                f"{size}, 2 ranks on one host, shared memory",
                "all-reduce-one-host",
                f"all-reduce of {size}, 2 ranks on one host, {times} times",
                "argosy",
                ("gloo",),
            )
            for size, times in (("64 KB", 200), ("1 MB", 50), ("16 MB", 5), ("64 MB", 2))
        ),
        Comparison(
            "32 MB, 2 hosts x 4 ranks, 1 Gbit/s, hierarchical",
            "all-reduce-two-hosts",
            "all-reduce of 32 MB, 2 hosts x 4 ranks, 1gbit",
            "hierarchical, shares",
            ("gloo, flat",),
        ),
    ),
)
SERVERS = Plot(
    "servers",
    "Parameter servers, wide and deep, async, 1 server, against Paddle 2.6.2",
    tuple(
        Comparison(
            f"{count} worker{'s' * (count > 1)}",
            "ps-wide-and-deep",
            f"{count} workers",
            "argosy",
            ("paddle",),
        )
        for count in (1, 2)
    ),
)
PLOTS = (STEP, RANKS, ALL_REDUCE, SERVERS)
START_UP = Comparison(
    "from the command to the first step of an MLP, 2 ranks, against torchrun",
    "start-up",
    "From the command to the first step, MLP, 2 ranks",
    "fleetrun",
    ("torchrun + DDP",),
)
DENSE = Comparison(
    "dense push and pull of 16 MB blocks, 2 trainers, 2 servers, with the update, against raw pyzmq without one",
    "ps-dense",
    "Push + pull of 16 MB blocks, 2 trainers, 2 servers",
    "argosy",
    ("raw pyzmq",),
)
