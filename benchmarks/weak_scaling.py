"""Predict the weak scaling of ResNet50 to 1,024 hosts: python benchmarks/weak_scaling.py

    one process    the step of examples/resnet is measured, with as many partners as a host has ranks
    simulation     1 to 1,024 hosts of this kind x 10, 25, 100 Gbit/s x settings, each a program that was never run
                   ──▶ benchmarks/results/DATE-weak-scaling.{json,md}; docs/scripts/pictures.py draws it

Predictions, not measurements: nothing here ran on more than one machine. `speed` is how fast a host computes, relative
to this machine: communication matters more for hosts that compute faster.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import datetime
import json
import platform
import tempfile
from dataclasses import replace
from pathlib import Path

from argosy.distributed.auto.node_times import NodeTimes
from argosy.distributed.auto.planning import MeasuredScript, Partners, measure_script
from argosy.distributed.auto.setting import Setting
from argosy.engine.planner.predict_step import predict
from argosy.engine.planner.step_trace import StepTrace
from argosy.engine.planner.topology import HostKind, Interference, Link, SharedMemory, Topology

ROOT = Path(__file__).parent.parent
HOSTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
GBITS = (10, 25, 100)
SPEEDS = (1, 20)
RANKS = 2
SETTINGS = {
    "defaults": Setting(),
    "overlap": Setting(bucket_mb=4, overlap=True),
    "hierarchical": Setting(hierarchical="reduce_scatter"),
    "hierarchical, overlap": Setting(bucket_mb=4, hierarchical="reduce_scatter", overlap=True),
    "hierarchical, overlap, bfloat16": Setting(
        bucket_mb=4, hierarchical="reduce_scatter", overlap=True, wire_dtype="bfloat16"
    ),
    "sharding": Setting(sharding=True),
}


def cluster(hosts: int, gbit: float, speed: float) -> Topology:
    """Hosts with two ranks of one core each. 94 % of the line rate is payload, as TCP over Ethernet has."""
    kind = HostKind("ethernet", hosts, cores=RANKS, ranks=RANKS, speed=speed)
    link = Link(0.94 * gbit, latency_us=25, message_us=5, cpu_s_per_gb=0.0 if speed > 1 else 0.4)
    memory = SharedMemory(8.0 * max(1.0, speed / 2), 20.0 * max(1.0, speed / 2))
    interference = Interference(computation=0.05 if speed == 1 else 0.0)
    return Topology((kind,), {"ethernet": link}, shared_memory=memory, interference=interference)


def traces(measured: MeasuredScript) -> dict[tuple[str, int], StepTrace]:
    """The step of a rank by setting and number of hosts; of several hosts it is the same, except with sharding."""
    traces = {}
    for name, setting in SETTINGS.items():
        for hosts in (1, 2, *(HOSTS[2:] if setting.sharding else ())):
            wanted = setting if hosts > 1 else replace(setting, hierarchical="")
            traces[name, hosts] = measured.search(cluster(hosts, 10, 1)).trace(wanted)
            print(f"{name}, {hosts} hosts: {len(traces[name, hosts].collectives)} collectives", flush=True)
    return traces


def predictions(measured: MeasuredScript) -> list[dict[str, object]]:
    """All combinations."""
    known, rows = traces(measured), []
    for speed in SPEEDS:
        for gbit in GBITS:
            for name in SETTINGS:
                for hosts in HOSTS:
                    trace = known.get((name, hosts)) or known[name, 2]
                    prediction = predict(trace, cluster(hosts, gbit, speed))
                    rows.append(
                        {
                            "speed": speed,
                            "gbit_per_s": gbit,
                            "setting": name,
                            "hosts": hosts,
                            "step_ms": round(prediction.step_ms, 2),
                            "examples_per_s": round(prediction.examples_per_s, 1),
                            "exposed_ms": round(prediction.exposed_ms, 2),
                            "bound": prediction.bound,
                        }
                    )
                print(f"speed {speed}, {gbit} Gbit/s, {name}: {rows[-1]['step_ms']} ms", flush=True)
    return rows


def write(rows: list[dict[str, object]], times: NodeTimes, folder: Path) -> None:
    """The dated result."""
    date = datetime.date.today().isoformat()
    content = {
        "date": date,
        "command": "python benchmarks/weak_scaling.py",
        "machine": platform.processor() or platform.machine(),
        "kind": "prediction",
        "examples_per_rank": times.examples,
        "step_ms_of_one_rank": times.step_ms,
        "rows": rows,
    }
    (folder / f"{date}-weak-scaling.json").write_text(json.dumps(content, indent=1) + "\n")
    lines = [
        f"# Predicted weak scaling of ResNet50, {date}",
        "",
        "`python benchmarks/weak_scaling.py`. **Predictions** by the planner from the measured step of one rank; "
        "nothing ran on more than one machine.",
        "",
        f"Hosts of {RANKS} ranks, {times.examples} examples per rank, 224 px. Efficiency: examples/s per host, of "
        "those of one host with the same setting.",
        "",
        f"| speed | Gbit/s | setting | {' | '.join(f'{h} hosts' for h in HOSTS[1:])} |",
        "|---" * (3 + len(HOSTS[1:])) + "|",
    ]
    for speed in SPEEDS:
        for gbit in GBITS:
            for name in SETTINGS:
                chosen = [
                    r for r in rows if (r["speed"], r["gbit_per_s"], r["setting"]) == (speed, gbit, name)
                ]
                parts = " | ".join(f"{efficiency(r, chosen[0]):.0%}" for r in chosen[1:])
                lines.append(f"| {speed} | {gbit} | {name} | {parts} |")
    (folder / f"{date}-weak-scaling.md").write_text("\n".join(lines) + "\n")


def efficiency(row: dict[str, object], one: dict[str, object]) -> float:
    """Throughput per host against that of one host."""
    return float(str(row["examples_per_s"])) / int(str(row["hosts"])) / float(str(one["examples_per_s"]))


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--seconds", type=float, default=10.0, help="to measure the step")
    p.add_argument("--batch", type=int, default=8, help="examples per rank")
    p.add_argument("--output", type=Path, default=ROOT / "benchmarks/results")
    known = p.parse_args()
    script = str(ROOT / "examples/resnet/train_fleet_static.py")
    words = ["--layers", "50", "--image_size", "224", "--batch_size", str(known.batch), "--class_dim", "102"]
    with tempfile.TemporaryDirectory() as folder:
        measured = measure_script(script, words, Partners(Path(folder)), (), known.seconds)
    write(predictions(measured), measured.times[0], known.output)


if __name__ == "__main__":
    main()
