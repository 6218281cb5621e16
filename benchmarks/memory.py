"""Peak memory of a ResNet50 training step: Argosy keeping less or more for backward, against torch eager.

python benchmarks/memory.py --batch 8 16

Each contender is a process of its own, which builds the model and trains three steps. `model` is the high-water mark
(VmHWM) less what the process had before the model was built; `process` is all of it.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import multiprocessing as mp
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import harness
import psutil  # type: ignore[import-untyped]  # it has no annotations
import resnet50_step

STEPS = 3
# name -> memory_optimize of the build strategy; torch has none
CONTENDERS: dict[str, bool | str | None] = {
    "argosy": None,
    "argosy, memory_optimize=True": True,
    "argosy, memory_optimize=False": False,
    "eager channels_last": "eager",
}


def build(how: bool | str | None, batch: int, pixels: int) -> harness.Step:
    """A step of the contender."""
    if isinstance(how, str):
        return resnet50_step.eager_channels_last(batch, pixels)
    step = resnet50_step.argosy(batch, pixels)
    from argosy.engine.ir.build import Build
    from argosy.engine.ir.program import default_main_program

    default_main_program().build = Build(memory_optimize=how)  # as a build strategy does
    return step


def serve(connection: Connection, how: bool | str | None, batch: int, pixels: int) -> None:
    """Train, and send (MiB of the process, MiB of the model, MiB that Argosy computed)."""
    import resnet  # noqa: F401  (with Argosy and torch: what is imported is not the model's)

    from argosy.engine.runtime.peak_memory import high_water_mark

    before = psutil.Process().memory_info().rss
    step = build(how, batch, pixels)
    for _ in range(STEPS):
        step()
    peak = high_water_mark() or 0
    connection.send((peak / 2**20, (peak - before) / 2**20, _computed(step)))


def _computed(step: Any) -> float:
    """What exe.memory_report says; 0 for torch."""
    for cell in step.__closure__:
        if hasattr(cell.cell_contents, "memory_report"):
            return float(cell.cell_contents.memory_report().peak_bytes / 2**20)
    return 0.0


def measured(how: bool | str | None, batch: int, pixels: int) -> tuple[float, float, float]:
    """One contender in a process of its own."""
    ours, theirs = mp.get_context("spawn").Pipe()
    process = mp.get_context("spawn").Process(target=serve, args=(theirs, how, batch, pixels), daemon=True)
    process.start()
    theirs.close()
    peaks: tuple[float, float, float] = ours.recv()
    process.join()
    return peaks


def table(title: str, peaks: dict[str, tuple[float, float, float]]) -> str:
    """A table in Markdown; ratios against torch eager."""
    head = "| | process MiB | model MiB | computed MiB | model, of eager |"
    lines = [f"## {title}", "", head, "|---|---|---|---|---|"]
    eager = peaks["eager channels_last"][1]
    for name, (process, model, computed) in peaks.items():
        shown = f"{computed:,.0f}" if computed else ""
        lines.append(f"| {name} | {process:,.0f} | {model:,.0f} | {shown} | {model / eager:.2f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--batch", type=int, nargs="+", default=[8, 16], help="batch sizes")
    p.add_argument("--pixels", type=int, default=224)
    args = p.parse_args()
    text, everything = "", {}
    for batch in args.batch:
        title = f"ResNet50, batch {batch}, {args.pixels} px, {STEPS} steps"
        peaks = {name: measured(how, batch, args.pixels) for name, how in CONTENDERS.items()}
        everything[title] = {name: harness.Measured(peak_mib=model) for name, (_, model, _) in peaks.items()}
        text += table(title, peaks) + "\n"
        print(table(title, peaks), file=sys.stderr)
    harness.write("memory", text, everything)


if __name__ == "__main__":
    main()
