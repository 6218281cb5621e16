"""Autotune (strategy.auto) on two hosts of the lab, against the defaults and against an exhaustive search.

python benchmarks/autotune.py best          1,000 steps with the default budget; then every setting in turn, many rounds
python benchmarks/autotune.py harmless      repeated short jobs: the chosen setting against the defaults
python benchmarks/autotune.py retune        the rate of the links changes: steps until the job has switched

A multilayer perceptron on 2 hosts x 2 ranks, or 2 hosts x 1 rank. Step times are means over the ranks, as the job
itself compares them. Each command adds its part to the result of the day.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import datetime
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parent))

import harness
from lab.namespaces import setns
from lab.network import Lab

Data = dict[str, Any]
_SKIPPED = 1
"""Steps of a turn that do not count: the setting before it may leave its mark."""


class Turns:
    """A decider that gives each setting some steps in turn."""

    spent_s = elapsed_s = reference_ms = 0.0
    wants_samples = False

    def __init__(self, settings: Sequence[Any], steps: int) -> None:
        self.settings, self.steps, self.number = list(settings), steps, 0
        self.setting = self.settings[0]
        self.decisions: list[Any] = []
        self.times: dict[Any, list[float]] = {setting: [] for setting in self.settings}

    def next_block(self) -> list[Any]:
        from argosy.distributed.auto.tuner import TunerStep

        self.setting = self.settings[self.number % len(self.settings)]
        self.number += 1
        return [TunerStep(self.setting)] * self.steps

    def finish(self, times: Sequence[float], elapsed_s: float, overhead_s: float) -> bool:
        self.times[self.setting] += [ms for ms in times[_SKIPPED:] if ms > 0]
        return False

    def propose(self, proposals: Sequence[Any], reason: str, took_s: float) -> None:
        raise AssertionError("never planned")

    def restore(self, setting: Any) -> None:
        raise AssertionError("never restored")


class Job:
    """One rank: the program, and what the commands do with it."""

    def __init__(self, width: int, layers: int, batch: int, budget: float) -> None:
        import numpy as np

        import argosy as paddle
        from argosy.distributed import fleet

        strategy = fleet.DistributedStrategy()
        strategy.auto = True
        strategy.auto_configs = {"budget": budget, "cache": False}
        fleet.init(is_collective=True, strategy=strategy)
        x, y = paddle.static.data("x", [None, width]), paddle.static.data("y", [None, 1], "int64")
        hidden = x
        for _ in range(layers):
            hidden = paddle.static.nn.fc(hidden, width, activation="relu")
        loss = paddle.nn.functional.cross_entropy(paddle.static.nn.fc(hidden, 10), y)
        fleet.distributed_optimizer(paddle.optimizer.Momentum(0.001, 0.9)).minimize(loss)
        exe = paddle.static.Executor()
        exe.run(paddle.static.default_startup_program())
        rng = np.random.default_rng(fleet.worker_index())
        feed = {
            "x": rng.standard_normal((batch, width)).astype("float32"),
            "y": rng.integers(0, 10, (batch, 1)),
        }
        main = paddle.static.default_main_program()
        self.run: Callable[[], Any] = lambda: exe.run(main, feed=feed, fetch_list=[loss])
        self.tuned = cast("Any", main.alternatives)
        self.tuned.max_programs = 100
        self.given = self.tuned.tuner.setting

    def train(self, steps: int) -> Data:
        """So many steps as they come; what the tuner says of itself, and the setting of each step."""
        active = []
        began = time.perf_counter()
        for _ in range(steps):
            self.run()
            active.append(self.tuned.active.text())
        tuner = self.tuned.tuner
        return {
            "seconds": time.perf_counter() - began,
            "active": active,
            "setting": tuner.setting.text(),
            "is_default": tuner.setting == self.given,
            "decisions": [{k: v for k, v in asdict(d).items() if v is not None} for d in tuner.decisions],
            "spent_s": tuner.spent_s,
            "elapsed_s": tuner.elapsed_s,
            "reference_ms": tuner.reference_ms,
        }

    def fresh(self, budget: float) -> Data:
        """Start again with the defaults, as another job would."""
        from argosy.distributed.auto.tuner import Tuner, TunerLimits

        self._use(Tuner(self.given, TunerLimits(budget=budget)))
        return {}

    def turns(self, rounds: int, steps: int, only: str) -> Data:
        """Every setting in turn, or the defaults and the chosen one; their median step times."""
        chosen, allowed = self.tuned.tuner.setting, self.tuned.job.allowed
        settings = list(dict.fromkeys([self.given, chosen])) if only == "chosen" else list(allowed)
        before = self.tuned.tuner
        turns = Turns(settings, steps)
        self._use(turns)
        for _ in range(rounds * steps * len(settings) + 1):
            self.run()
        self._use(before)
        return {
            s.text(): {"median_ms": statistics.median(t), "times_ms": t} for s, t in turns.times.items() if t
        }

    def best_of(self, names: Sequence[str], rounds: int, steps: int) -> Data:
        """These settings in turn."""
        before = self.tuned.tuner
        turns = Turns([s for s in self.tuned.job.allowed if s.text() in names], steps)
        self._use(turns)
        for _ in range(rounds * steps * len(turns.settings) + 1):
            self.run()
        self._use(before)
        return {s.text(): {"median_ms": statistics.median(t), "times_ms": t} for s, t in turns.times.items()}

    def _use(self, tuner: Any) -> None:
        self.tuned.tuner, self.tuned._block, self.tuned._times = tuner, (), []


def serve(connection: Connection, arguments: Data, environ: dict[str, str], host: str | None) -> None:
    """A rank: runs commands until it gets None."""
    if host is not None:
        setns(host)
    os.environ.update(environ | {"ARGOSY_LOG": "warning", "ARGOSY_BACKGROUND_SEARCH": "0"})
    import torch

    torch.set_num_threads(1)
    job = Job(**arguments)
    connection.send("ready")
    while (command := connection.recv()) is not None:
        name, *values = command
        connection.send(getattr(job, name)(*values))


class Ranks:
    """All ranks of a job in a lab; a command goes to all, and rank 0 gives the result."""

    def __init__(self, lab: Lab, ranks: int, **arguments: Any) -> None:
        places = harness._places(ranks, lab)
        self.running = [harness.start(serve, arguments, environ, host) for environ, host in places]
        for _, connection in self.running:
            connection.recv()

    def call(self, name: str, *values: Any) -> Data:
        for _, connection in self.running:
            connection.send((name, *values))
        results = [connection.recv() for _, connection in self.running]
        if "active" in results[0]:
            assert all(r["active"] == results[0]["active"] for r in results), "the ranks have other settings"
        first: Data = results[0]
        return first

    def close(self) -> None:
        for process, connection in self.running:
            connection.send(None)
            process.join(20)


def best(args: argparse.Namespace, lab: Lab) -> Data:
    """Autotune with the default budget, then an exhaustive search in the same job."""
    job = Ranks(lab, args.ranks, width=args.width, layers=args.layers, batch=args.batch, budget=args.budget)
    trained = job.call("train", args.steps)
    print(f"chosen after {args.steps} steps: {trained['setting']}", file=sys.stderr)
    write("budget", _spent(args, trained))  # first: the search takes long, and may be ended
    every = job.call("turns", args.rounds, 4, "all")
    default = next(iter(every))
    order = sorted(every, key=lambda name: float(every[name]["median_ms"]))
    names = list(dict.fromkeys([*order[:3], trained["setting"], default]))
    final = job.call("best_of", names, 4 * args.rounds, 4)
    job.close()
    fastest = min(final, key=lambda name: float(final[name]["median_ms"]))
    medians = {name: round(final[name]["median_ms"], 3) for name in names}
    chosen_ms, default_ms = final[trained["setting"]]["median_ms"], final[default]["median_ms"]
    verified = [d for d in trained["decisions"] if d["kind"] in ("switch", "keep")]
    return {
        "hosts x ranks, rate": f"2 x {args.ranks // 2}, {args.rate}",
        "steps": args.steps,
        "settings": len(every),
        "default": default,
        "chosen": trained["setting"],
        "best of the exhaustive search": fastest,
        "default ms": round(default_ms, 3),
        "chosen ms": round(chosen_ms, 3),
        "best ms": round(final[fastest]["median_ms"], 3),
        "chosen against best": round(chosen_ms / final[fastest]["median_ms"], 4),
        "default against chosen": round(default_ms / chosen_ms, 4),
        "verified settings": len(verified),
        "spent s": round(trained["spent_s"], 3),
        "elapsed s": round(trained["elapsed_s"], 2),
        "spent part": round(trained["spent_s"] / trained["elapsed_s"], 4),
        "finalists": medians,
        "decisions": trained["decisions"],
        "exhaustive": {name: round(every[name]["median_ms"], 3) for name in order},
    }


def _spent(args: argparse.Namespace, trained: Data) -> Data:
    """What tuning has used of a run."""
    verified = [d for d in trained["decisions"] if d["kind"] in ("switch", "keep")]
    return {
        "hosts x ranks, rate": f"2 x {args.ranks // 2}, {args.rate}",
        "steps": args.steps,
        "budget": args.budget,
        "chosen": trained["setting"],
        "verified settings": len(verified),
        "spent s": round(trained["spent_s"], 3),
        "elapsed s": round(trained["elapsed_s"], 2),
        "spent part": round(trained["spent_s"] / trained["elapsed_s"], 4),
        "decisions": trained["decisions"],
    }


def harmless(args: argparse.Namespace, lab: Lab) -> Data:
    """Jobs that begin with the defaults, over and over; what they chose against the defaults."""
    job = Ranks(lab, args.ranks, width=args.width, layers=args.layers, batch=args.batch, budget=args.budget)
    ratios: list[float] = []
    chosen: list[str] = []
    tried: list[int] = []
    until = time.monotonic() + args.seconds
    while len(ratios) < args.repeats and time.monotonic() < until:
        job.call("fresh", args.budget)
        trained = job.call("train", args.steps)
        chosen.append(trained["setting"])
        tried.append(sum(d["kind"] in ("switch", "keep") for d in trained["decisions"]))
        if trained["is_default"]:
            ratios.append(1.0)
        else:
            both = list(job.call("turns", args.rounds, 4, "chosen").values())
            ratios.append(both[1]["median_ms"] / both[0]["median_ms"])
        print(f"\r  {len(ratios)} repeats, the worst {max(ratios):.3f}", end="", file=sys.stderr, flush=True)
    job.close()
    return {
        "hosts x ranks, rate": f"2 x {args.ranks // 2}, {args.rate}",
        "repeats": len(ratios),
        "steps of a repeat": args.steps,
        "settings verified, in all repeats": sum(tried),
        "repeats without a trial": tried.count(0),
        "stayed with the defaults": sum(ratio == 1.0 for ratio in ratios),
        "chosen against default, worst": round(max(ratios), 4),
        "median": round(statistics.median(ratios), 4),
        "repeats above 1.02": sum(ratio > 1.02 for ratio in ratios),
        "ratios": [round(ratio, 4) for ratio in ratios],
        "settings": {name: chosen.count(name) for name in dict.fromkeys(chosen)},
    }


def retune(args: argparse.Namespace, lab: Lab) -> Data:
    """The rate of the links changes after the job has settled."""
    job = Ranks(lab, args.ranks, width=args.width, layers=args.layers, batch=args.batch, budget=args.budget)
    before = job.call("train", args.steps)
    for host in range(2):
        lab.limit(host, args.then)
    after = job.call("train", args.after)
    job.close()
    new = after["decisions"][len(before["decisions"]) :]
    active = after["active"]
    differs = [number for number, name in enumerate(active) if name != after["setting"]]
    return {
        "hosts x ranks, rate": f"2 x {args.ranks // 2}, {args.rate}, then {args.then}",
        "setting before": before["setting"],
        "setting after": after["setting"],
        "step ms before": round(before["reference_ms"], 2),
        "step ms after": round(after["reference_ms"], 2),
        "steps until the change was seen": next(
            (d["step"] - args.steps for d in new if d["kind"] == "change"), None
        ),
        "steps until the first switch": next(
            (d["step"] - args.steps for d in new if d["kind"] == "switch"), None
        ),
        "steps until the last step of another setting": differs[-1] + 1 if differs else 0,
        "decisions": new,
    }


def write(name: str, result: Data) -> None:
    """Add a part to the result of the day."""
    path = harness.RESULTS / f"{datetime.date.today().isoformat()}-autotune.json"
    content = json.loads(path.read_text()) if path.exists() else {}
    command = " ".join(["python", *sys.argv])
    content.setdefault(name, []).append({"command": command, "load": os.getloadavg()[0], **result})
    path.write_text(json.dumps(content, indent=1) + "\n")
    lines = [
        f"# autotune, {datetime.date.today().isoformat()}",
        "",
        f"On {harness._cpu()}, {os.cpu_count()} cores.",
        "",
    ]
    for part, runs in content.items():
        for run in runs:
            lines += [
                f"## {part}: {run['hosts x ranks, rate']}",
                "",
                f"`{run['command']}`",
                "",
                "| | |",
                "|---|---|",
            ]
            plain = {k: v for k, v in run.items() if not isinstance(v, dict | list) and k != "command"}
            lines += [f"| {key} | {value} |" for key, value in plain.items()]
            lines.append("")
    path.with_suffix(".md").write_text("\n".join(lines))
    print(
        json.dumps(
            {k: v for k, v in result.items() if k not in ("decisions", "exhaustive", "ratios")}, indent=1
        )
    )


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("best", "harmless", "retune"))
    p.add_argument("--ranks", type=int, default=4, help="on both hosts together")
    p.add_argument("--rate", default="1gbit")
    p.add_argument("--then", default="200mbit", help="retune: the rate after the change")
    p.add_argument("--width", type=int, default=384)
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--steps", type=int, default=1000)
    p.add_argument("--after", type=int, default=200, help="retune: steps after the change")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--repeats", type=int, default=50)
    p.add_argument("--seconds", type=float, default=200.0, help="harmless: no repeat begins later")
    p.add_argument("--budget", type=float, default=0.02)
    args = p.parse_args()
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    with Lab(2, None if args.rate == "none" else args.rate) as lab:
        write(args.what, {"best": best, "harmless": harmless, "retune": retune}[args.what](args, lab))


if __name__ == "__main__":
    main()
