"""How well the planner predicts jobs with parameter servers: predictions, then measurements, of held-out settings.

python benchmarks/planner_ps_accuracy.py predict             measures the small jobs, and writes the predictions
python benchmarks/planner_ps_accuracy.py measure             measures the held-out settings, and writes the result
python benchmarks/planner_ps_accuracy.py both --only mlp     one model

A model and mode is a unit: three small jobs of 1 and 2 servers and workers, as python -m argosy.plan servers measures
them, give the prediction of each held-out setting, which is written before that setting is started. Servers have core 0
and workers core 1: the topology is a host with a core for the servers, and one for the workers. Needs two cores.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import harness

from argosy.engine.errors import ConfigError
from argosy.engine.planner.predict_step import predict
from argosy.engine.planner.ps_measured import Mode, PsMeasured, setup_of, trace_of
from argosy.engine.planner.topology import HostKind, Link, Topology
from argosy.plan import ps_jobs

SCRIPT = Path(__file__).with_name("planner_ps_script.py")
MODELS = ("mlp", "wide_and_deep")
MODES: tuple[Mode, ...] = ("sync", "async", "geo")
K_STEPS = 10
HELD_OUT = ((1, 3), (1, 4), (2, 2), (3, 1), (3, 4))
"""(servers, workers), of each model and mode; written before the model was fitted."""
WARM_UP, SECONDS, START_S = 45, 2.5, 120.0
STATE = harness.RESULTS / "2026-11-18-planner-ps-accuracy.json"


def topology_of(workers: int) -> Topology:
    """All workers on one core; the loopback limits nothing but the core time of its threads."""
    return Topology((HostKind("loopback", 1, cores=1, ranks=workers),), {"loopback": Link(1e4)})


def predicted_ms(measured: PsMeasured, servers: int, workers: int) -> float:
    """The time of a step of a worker."""
    setup = setup_of(measured, servers, cores=1, servers_per_host=servers)
    return predict(trace_of(measured, servers, workers), topology_of(workers), setup, repeats=1).step_ms


def measured_ms(model: str, mode: str, servers: int, workers: int) -> float:
    """Start a job, and measure the mean time of a step of a worker."""
    words = [
        sys.executable,
        str(SCRIPT),
        model,
        "--mode",
        mode,
        "--k-steps",
        str(K_STEPS),
        "--cores",
        "0",
        "1",
    ]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        environments = ps_jobs.environments_of(servers, workers, Path(folder) / "metrics", threads=1)
        processes = []
        for number, environ in enumerate(environments):
            log = stack.enter_context((Path(folder) / f"log{number}").open("wb"))
            command = [*words, "--times", folder]
            processes.append(subprocess.Popen(command, env=environ, stdout=log, stderr=log))
            stack.callback(_end, processes[-1])
        files = [Path(folder) / f"worker{number}" for number in range(workers)]
        until = time.monotonic() + START_S
        while any(len(_ends(file)) < WARM_UP for file in files):
            if time.monotonic() > until or any(p.poll() is not None for p in processes):
                logs = "\n".join(p.read_text()[-500:] for p in Path(folder).glob("log*"))
                raise RuntimeError(f"{model} {mode} {servers} x {workers} does not train:\n{logs}")
            time.sleep(0.1)
        time.sleep(SECONDS)
        ends = [_ends(file) for file in files]
    last = min(times[-1] for times in ends)
    first = max(times[WARM_UP - 1] for times in ends)
    per_s = 0.0
    for times in ends:
        inside = [t for t in times if first <= t <= last]
        per_s += (len(inside) - 1) / (inside[-1] - inside[0])
    return workers / per_s * 1e3


def _ends(file: Path) -> list[float]:
    if not file.exists():
        return []
    return [float(line) for line in file.read_text().split("\n")[:-1]]


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()


# --- state and report ---------------------------------------------------------------------------------


def load() -> dict[str, Any]:
    return json.loads(STATE.read_text()) if STATE.exists() else {}


def save(state: dict[str, Any]) -> None:
    STATE.write_text(json.dumps(state, indent=1) + "\n")


def run_predict(model: str, mode: Mode) -> None:
    """Measure the small jobs of a unit, and write its predictions."""
    measured = ps_jobs.measure(SCRIPT, [model], mode, K_STEPS if mode == "geo" else 1, seconds=3.0)
    state = load()
    unit: dict[str, Any] = state.setdefault(f"{model} {mode}", {"settings": {}})
    folder = Path(tempfile.gettempdir())
    measured.write(folder / "unit.json")
    unit["small_jobs"] = json.loads((folder / "unit.json").read_text())
    unit["small_ms"] = {
        name: [getattr(measured, name).step_ms, predicted_ms(measured, *shape)]
        for name, shape in ps_jobs.JOBS.items()
    }
    for servers, workers in HELD_OUT:
        one = unit["settings"].setdefault(f"{servers} {workers}", {"measured_ms": []})
        one["predicted_ms"] = predicted_ms(measured, servers, workers)
        one["predicted_at"] = time.time()
    save(state)
    print(
        model, mode, unit["small_ms"], {k: s["predicted_ms"] for k, s in unit["settings"].items()}, flush=True
    )


def run_measure(model: str, mode: Mode) -> None:
    """Measure the held-out settings of a unit once more."""
    for servers, workers in HELD_OUT:
        ms = measured_ms(model, mode, servers, workers)
        state = load()
        one = state[f"{model} {mode}"]["settings"][f"{servers} {workers}"]
        one["measured_ms"].append(ms)
        save(state)
        print(
            f"{model} {mode} {servers} x {workers}: {ms:.2f} ms, predicted {one['predicted_ms']:.2f}",
            flush=True,
        )


def report() -> None:
    """Write the tables."""
    rows, errors, repeats, pairs = [], [], [], []
    for unit, content in load().items():
        model, mode = unit.split()
        for shape, one in content["settings"].items():
            if not one["measured_ms"]:
                continue
            servers, workers = shape.split()
            middle = statistics.median(one["measured_ms"])
            error = one["predicted_ms"] / middle - 1
            spread = max(one["measured_ms"]) / min(one["measured_ms"]) - 1
            errors.append(abs(error))
            repeats.append(spread)
            batch = int(content["small_jobs"]["examples"])
            pairs.append((one["predicted_ms"] / batch / int(workers), middle / batch / int(workers), model))
            rows.append(
                f"| {model} | {mode} | {servers} | {workers} | {one['predicted_ms']:.2f} | {middle:.2f} "
                f"| {error:+.1%} | {spread:.1%} |"
            )
    if not rows:
        raise ConfigError("nothing is measured yet; run with `predict`, then `measure`")
    ranks = {model: _rank_correlation([(p, m) for p, m, who in pairs if who == model]) for model in MODELS}
    text = [
        "# planner-ps-accuracy, 2026-11-18",
        "",
        "`python benchmarks/planner_ps_accuracy.py predict`, then `measure` several times, on 2 cores: servers on "
        "core 0, workers on core 1.",
        "",
        f"{len(rows)} held-out settings. Error of the prediction: median {statistics.median(errors):.1%}, "
        f"worst {max(errors):.1%}, {sum(e <= 0.07 for e in errors)} within 7 %. Repeatability (largest over smallest "
        f"of the repeats, less 1): median {statistics.median(repeats):.1%}, worst {max(repeats):.1%}.",
        "",
        "Rank correlation of examples per second: "
        + ", ".join(f"{model} {value:.3f}" for model, value in ranks.items())
        + ".",
        "",
        "| model | mode | servers | workers | predicted ms | measured ms | error | repeatability |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        "A step of a worker, in milliseconds; measured: the median. Predictions are of the small jobs in "
        "the JSON file, and were written before the settings were started (`predicted_at`).",
    ]
    STATE.with_suffix(".md").write_text("\n".join(text) + "\n")
    print("\n".join(text))


def _rank_correlation(pairs: list[tuple[float, float]]) -> float:
    def ranks(values: list[float]) -> list[float]:
        order = sorted(values)
        return [float(order.index(value)) for value in values]

    if len(pairs) < 2:
        return float("nan")
    return statistics.correlation(ranks([p for p, _ in pairs]), ranks([m for _, m in pairs]))


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("predict", "measure", "both", "report"))
    p.add_argument("--only", nargs="+", default=[], choices=(*MODELS, *MODES), help="models and modes")
    args = p.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        raise ConfigError("this benchmark needs two cores")
    models = [model for model in MODELS if model in args.only] or MODELS
    modes = [mode for mode in MODES if mode in args.only] or MODES
    for model in models:
        for mode in modes:
            if args.what in ("predict", "both"):
                run_predict(model, mode)
            if args.what in ("measure", "both"):
                run_measure(model, mode)
    report()


if __name__ == "__main__":
    main()
