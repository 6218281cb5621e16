"""Predicted weak scaling of wide and deep with parameter servers to 1,024 hosts: a table and a picture.

python benchmarks/planner_ps_scale.py MEASURED.json      a file of `python -m argosy.plan servers --write`

A worker per host, a server for every four workers on a host of its own. These are predictions, not measurements.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import sys
from pathlib import Path

from argosy.engine.planner.predict_step import predict
from argosy.engine.planner.ps_measured import PsMeasured, read_ps_measured, setup_of, trace_of
from argosy.engine.planner.topology import HostKind, Link, Topology

HOSTS = (1, 4, 16, 64, 256, 1024)
GBITS = (10.0, 25.0, 100.0)
CORES, LATENCY_US, PER_SERVER, PAYLOAD = 8, 20.0, 4, 0.94
RESULT = Path(__file__).parent / "results" / "2026-11-18-planner-ps-scale.json"
PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "planner-ps-scale.svg"
COLOURS = {10.0: "#c0392b", 25.0: "#d68910", 100.0: "#2471a3"}


def examples_per_s(measured: PsMeasured, hosts: int, gbit: float) -> float:
    """Of all workers."""
    servers = max(1, hosts // PER_SERVER)
    topology = Topology(
        (HostKind("ethernet", hosts, cores=CORES),), {"ethernet": Link(gbit * PAYLOAD, LATENCY_US)}
    )
    setup = setup_of(measured, servers, cores=CORES)
    return predict(trace_of(measured, servers, hosts), topology, setup, repeats=1).examples_per_s


def svg(mode: str, rates: dict[float, list[float]]) -> str:
    """Examples per second over hosts, both logarithmic, and the line of ideal scaling."""
    import math

    width, height, left, bottom = 640, 400, 70, 50
    top = max(max(values) for values in rates.values())
    ideal = [rates[GBITS[-1]][0] * hosts for hosts in HOSTS]
    low, high = math.log10(min(v[0] for v in rates.values())), math.log10(max(top, ideal[-1]))

    def point(number: int, value: float) -> str:
        x = left + (width - left - 90) * number / (len(HOSTS) - 1)
        y = 30 + (height - bottom - 30) * (1 - (math.log10(value) - low) / (high - low))
        return f"{x:.1f},{y:.1f}"

    def line(values: list[float], style: str, label: str, colour: str) -> str:
        points = " ".join(point(n, v) for n, v in enumerate(values))
        x, y = point(len(values) - 1, values[-1]).split(",")
        return (
            f'<polyline fill="none" stroke="{colour}" stroke-width="2" {style} points="{points}"/>'
            f'<text x="{float(x) + 6:.1f}" y="{float(y) + 4:.1f}" fill="{colour}">{label}</text>'
        )

    parts = [line(ideal, 'stroke-dasharray="4 4"', "ideal", "#888")]
    parts += [line(values, "", f"{gbit:g} Gbit/s", COLOURS[gbit]) for gbit, values in rates.items()]
    for number, hosts in enumerate(HOSTS):
        x = point(number, 10**low).split(",")[0]
        parts.append(f'<text x="{x}" y="{height - 28}" text-anchor="middle" fill="#555">{hosts:,}</text>')
    for power in range(math.ceil(low), math.floor(high) + 1):
        y = point(0, 10**power).split(",")[1]
        parts.append(f'<text x="{left - 8}" y="{y}" text-anchor="end" fill="#555">{10**power:,}</text>')
    title = f"Prediction: wide and deep, {mode}, examples per second over hosts"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" font-family="sans-serif" '
        f'font-size="12"><title>{title}</title><text x="{left}" y="18" fill="#555">{title}</text>{"".join(parts)}'
        f'<text x="{width / 2}" y="{height - 8}" text-anchor="middle" fill="#555">hosts (a worker each)</text></svg>\n'
    )


def main() -> None:
    measured = read_ps_measured(Path(sys.argv[1]))
    rates = {gbit: [examples_per_s(measured, hosts, gbit) for hosts in HOSTS] for gbit in GBITS}
    RESULT.write_text(
        json.dumps({"mode": measured.mode, "hosts": HOSTS, "examples_per_s": rates}, indent=1) + "\n"
    )
    PICTURE.write_text(svg(measured.mode, rates))
    lines = [
        "# planner-ps-scale, 2026-11-18: predictions, not measurements",
        "",
        f"`benchmarks/planner_ps_scale.py`: wide and deep, {measured.mode}, {measured.examples} examples per worker; "
        f"a worker per host, a server for {PER_SERVER} workers, {CORES} cores, {LATENCY_US:g} us.",
        "",
        "| hosts | " + " | ".join(f"{gbit:g} Gbit/s, examples/s (of ideal)" for gbit in GBITS) + " |",
        "|---" * (1 + len(GBITS)) + "|",
    ]
    for number, hosts in enumerate(HOSTS):
        cells = [f"{v[number]:,.0f} ({v[number] / (v[0] * hosts):.0%})" for v in rates.values()]
        lines.append(f"| {hosts:,} | " + " | ".join(cells) + " |")
    RESULT.with_suffix(".md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
