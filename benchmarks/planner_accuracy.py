"""How well the planner predicts steps in the lab: predictions are written first, then the steps are measured.

python benchmarks/planner_accuracy.py mlp mobilenet transformer
python benchmarks/planner_accuracy.py mlp --cases training --dry
python benchmarks/planner_accuracy.py --collect FOLDER …       write the result of models that were measured one by one

Two hosts of the lab have a core each; one host has both. For every model: processes of all places are started and
build their programs; then the probe and the node times are measured, all cases are predicted and the predictions are
written; then the cases are measured in rounds. `--go FILE` waits for that file between building and measuring.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import harness
from lab.network import Lab
from planner import cases, summary
from planner.cases import Case
from planner.jobs import Jobs, busy_s

from argosy.engine.planner.probe_fit import fit
from argosy.engine.planner.topology import HostKind, Link, Topology, read_topology

PROCESSES = {"1x1": 1, "1x2": 2, "2x1": 2, "1x4": 4, "2x2": 4}
RATES = ("none", "1gbit", "100mbit")
_FOREIGN = 0.1
"""A round in which other processes used more than this share of the cores does not count, if two others do."""


def probe(jobs: Jobs, budget_s: float) -> dict[str, Topology]:
    """The topology of every place and rate, as the probe finds it."""
    found = {"1x1": Topology((HostKind("e"),), {"e": Link(1.0)})}
    for place, mine in jobs.cases.items():
        for rate in dict.fromkeys(case.rate for case in mine) if place != "1x1" else ():
            jobs.set_rate(rate)
            measured = jobs.ask(place, "probe", budget_s)[0]
            found[place + rate] = fit(measured)
            print(f"probe {place} {rate}: {found[place + rate]}", file=sys.stderr, flush=True)
    return found


def measure(
    jobs: Jobs, predictions: dict[Case, float], rounds: int, seconds: float
) -> dict[Case, list[dict[str, Any]]]:
    """By case and round: the times of steps, and the share of the cores that other processes used."""
    found: dict[Case, list[dict[str, Any]]] = {}
    for _ in range(rounds):
        for rate in ("", *RATES):
            for place, mine in jobs.cases.items():
                for number, case in enumerate(mine):
                    if case.rate == rate:
                        jobs.set_rate(rate)
                        one = _round(jobs, place, number, predictions[case], seconds)
                        found.setdefault(case, []).append(one)
    return found


def _round(jobs: Jobs, place: str, number: int, expected_s: float, seconds: float) -> dict[str, Any]:
    count = min(25, max(5, round(seconds / expected_s)))
    before = busy_s(), jobs.own_cpu_s(), time.perf_counter()
    times = jobs.ask(place, "step", number, count)[0][1:]
    busy, own, took = (
        b - a for a, b in zip(before, (busy_s(), jobs.own_cpu_s(), time.perf_counter()), strict=True)
    )
    return {"seconds": times, "foreign": max(0.0, busy - own) / took / 2}


def result(case: Case, prediction: dict[str, Any], rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """A line of the table."""
    quiet = [one for one in rounds if one["foreign"] <= _FOREIGN]
    kept = quiet if len(quiet) >= 2 else rounds
    medians = [median(one["seconds"]) * 1e3 for one in kept]
    measured = median(t * 1e3 for one in kept for t in one["seconds"])
    return {
        "case": case.text(),
        "place": case.place,
        "predicted_ms": prediction["step_ms"],
        "measured_ms": measured,
        "error": prediction["step_ms"] / measured - 1,
        "repeatability": (max(medians) - min(medians)) / measured,
        "foreign": max(one["foreign"] for one in kept),
        "rounds": len(kept),
        "nominal_ms": prediction["nominal_ms"],
        "exposed_ms": prediction["exposed_ms"],
        "bound": prediction["bound"],
    }


def run_model(model: str, args: argparse.Namespace, lab: Lab, folder: Path) -> list[dict[str, Any]]:
    """The lines of one model."""
    every = cases.read(args.cases)
    if args.places:
        every = [case for case in every if case.place in args.places]
    jobs = Jobs(model, every, lab, not args.unpinned)
    try:
        _wait_for(args.go, folder / f"{model}.ready")
        began = time.perf_counter()
        topologies = _read_topologies(args.topologies) or probe(jobs, args.probe_s)
        print(f"{model}: probed in {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
        times = jobs.node_times(args.node_s)
        (folder / f"{model}-measurements.json").write_text(
            json.dumps({n: t.step_ms for n, t in times.items()})
        )
        for n, one in times.items():
            one.write(folder / f"{model}-times{n}.json")
        for key, topology in topologies.items():
            topology.write(folder / f"{key}.toml")
        predicted = {
            case: jobs.predict(
                case,
                times[PROCESSES[case.place]],
                topologies[case.place + case.rate if case.place != "1x1" else "1x1"],
            )
            for place in jobs.cases
            for case in jobs.cases[place]
        }
        (folder / f"{model}-predictions.json").write_text(
            json.dumps({case.text(): p["step_ms"] for case, p in predicted.items()}, indent=1)
        )
        print(
            f"{model}: predictions written after {time.perf_counter() - began:.0f} s",
            file=sys.stderr,
            flush=True,
        )
        seconds = {case: p["step_ms"] / 1e3 for case, p in predicted.items()}
        measured = measure(jobs, seconds, args.rounds, args.seconds)
        print(f"{model}: measured after {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    finally:
        jobs.end()
    lines = [{"model": model, **result(case, predicted[case], measured[case])} for case in measured]
    (folder / f"{model}-lines.json").write_text(json.dumps(lines, indent=1))
    return lines


def _read_topologies(folder: Path | None) -> dict[str, Topology]:
    return (
        {} if folder is None else {path.stem: read_topology(path) for path in sorted(folder.glob("*.toml"))}
    )


def _wait_for(go: Path | None, ready: Path) -> None:
    ready.touch()
    while go is not None and not go.exists():
        time.sleep(0.2)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="*")
    p.add_argument("--collect", type=Path, nargs="+", default=[], help="folders of runs with --folder")
    p.add_argument("--note", default="", help="about the machine, for the result")
    p.add_argument("--cases", default="held_out", choices=("held_out", "training"))
    p.add_argument("--places", nargs="+", help="only these, for example 2x1")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=float, default=0.6, help="of one round of one case")
    p.add_argument("--probe-s", type=float, default=0.2, help="for one size of an all-reduce")
    p.add_argument("--topologies", type=Path, help="a folder of another model: do not probe again")
    p.add_argument("--node-s", type=float, default=3.0, help="to measure the nodes")
    p.add_argument("--unpinned", action="store_true", help="hosts of the lab may use both cores")
    p.add_argument("--go", type=Path, help="wait for this file before measuring")
    p.add_argument(
        "--folder", type=Path, default=Path("planner-accuracy"), help="predictions and measurements"
    )
    p.add_argument("--dry", action="store_true", help="write no results")
    args = p.parse_args()
    args.folder.mkdir(exist_ok=True, parents=True)
    lines = [
        line
        for folder in args.collect
        for path in folder.glob("*-lines.json")
        for line in json.loads(path.read_text())
    ]
    if args.models:
        with Lab(2, None) as lab:
            for model in args.models:
                lines += run_model(model, args, lab, args.folder)
    text = (f"{args.note}\n\n" if args.note else "") + summary.table(lines)
    if args.dry:
        print(text)
        return
    path = harness.write("planner-accuracy", text, {})
    path.with_suffix(".json").write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    main()
