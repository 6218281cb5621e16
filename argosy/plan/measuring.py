"""A process of `python -m argosy.plan SCRIPT`: `python -m argosy.plan.measuring DIR NUMBER COUNT ARGUMENTS`.

Process 0 measures the script's step, searches the settings and prints them; the others run the same step meanwhile.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from argosy.distributed.auto.planning import MeasuredScript, Partners, measure_script
from argosy.distributed.auto.search import Candidate, Search, nearest_first
from argosy.engine.errors import ArgosyError
from argosy.engine.planner.topology import Topology, read_topology
from argosy.plan import arguments
from argosy.plan.choices import Choice, explain, show


def main(argv: list[str]) -> int:
    """Exit codes: 0, 1 if the script cannot be planned, 2 if the arguments are invalid."""
    directory, number, count = Path(argv[0]), int(argv[1]), int(argv[2])
    p = argparse.ArgumentParser(prog="python -m argosy.plan")
    arguments.add_to(p)
    known, rest = p.parse_known_args(argv[3:])
    rest = rest[1:] if rest[:1] == ["--"] else rest
    partners = Partners(directory, number, count)
    try:
        measured = measure_script(str(known.script), rest, partners, _extra_batches(known), known.seconds)
        if known.write_times is not None:
            measured.times[0].write(known.write_times)
        _search(known, measured)
    except ArgosyError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    return 0


def _extra_batches(known: argparse.Namespace) -> list[int]:
    """Batch sizes to measure: two at most, the others are fitted."""
    wanted = sorted(set(known.batch or ()))
    return wanted if len(wanted) <= 2 else [wanted[0], wanted[-1]]


def _search(known: argparse.Namespace, measured: MeasuredScript) -> None:
    if known.explain:
        topology = next(_topologies(known))
        search = measured.search(topology, 0, known.memory_mb << 20)
        explain(search, arguments.SWITCHES[known.explain], known.explain)
        return
    found: list[Choice] = []
    for topology in _topologies(known):
        for examples in dict.fromkeys((measured.examples, *(known.batch or ()))):
            search = measured.search(topology, examples, known.memory_mb << 20)
            search.progress = _progress
            candidates = search.best(known.changes_numerics)
            found += [_choice(known, search, candidate, topology, examples) for candidate in candidates]
    print(file=sys.stderr)
    given = measured.template.setting
    found = nearest_first(found, _ms_per_example, lambda c: c.candidate.setting, given)
    if known.json:
        print(json.dumps([c.to_data(given) for c in found[: known.top]], indent=1))
    else:
        show(found, given, known.top)


def _ms_per_example(choice: Choice) -> tuple[bool, float]:
    """Batches differ, so settings are compared by their throughput."""
    return not choice.fits, 1e3 / choice.examples_per_s if choice.examples_per_s else choice.step_ms


def _choice(
    known: argparse.Namespace, search: Search, candidate: Candidate, topology: Topology, examples: int
) -> Choice:
    per_s = candidate.prediction.examples_per_s
    epoch_s = known.examples / per_s if known.examples and per_s else 0.0
    host_hours = epoch_s / 3600 * topology.num_hosts
    return Choice(
        candidate, topology, examples, search.fits(candidate), epoch_s, host_hours, host_hours * known.price
    )


def _topologies(known: argparse.Namespace) -> Iterator[Topology]:
    topology = read_topology(known.hosts)
    for ranks in known.ranks_per_host or [None]:
        yield topology if ranks is None else topology.with_ranks_per_host(ranks)


_count = 0


def _progress(candidate: Candidate) -> Any:
    global _count  # noqa: PLW0603  (of this process)
    _count += 1
    text = f"{_count} settings simulated; {candidate.setting.text()}: {candidate.prediction.step_ms:.1f} ms"
    end = "" if sys.stderr.isatty() else "\n"
    if end == "" or _count % 10 == 0:
        print(f"\r\x1b[K{text}" if end == "" else text, end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
