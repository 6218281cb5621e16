"""A ResNet50 training step that recomputes activations: peak memory and time against the default.

python benchmarks/recompute.py --batch 16 --rounds 12

`auto` is checkpoints="auto", `blocks` the sums at the ends of the blocks as checkpoints. Each contender is a process of
its own; they take turns. `static` is the peak that `memory_report` computes; `model` is the high-water mark of the
process (VmHWM) less what it had before the model was built.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import harness
import psutil  # type: ignore[import-untyped]  # it has no annotations
from resnet50_step import argosy

CONTENDERS = ("default", "auto", "blocks")


def wrapped(optimizer: Any, contender: str, fuses: bool) -> Any:
    """The optimizer under a strategy with recompute, or without."""
    import resnet

    import argosy as paddle
    from argosy.distributed import fleet

    strategy = fleet.DistributedStrategy()
    build = paddle.static.BuildStrategy()
    for name in ("fuse_bn_act_ops", "fuse_elewise_add_act_ops", "fuse_all_optimizer_ops"):
        setattr(build, name, fuses)
    strategy.build_strategy = build
    model = resnet.ResNet(50)
    blocks = [
        model.block_name(stage, i) for stage, count in enumerate(resnet.BLOCKS[50]) for i in range(count)
    ]
    if contender != "default":
        strategy.recompute = True
        sums = [f"{block}.add.output.5.tmp_0" for block in blocks]
        strategy.recompute_configs = {"checkpoints": sums if contender == "blocks" else "auto"}
    fleet.init(is_collective=True, strategy=strategy)
    return fleet.distributed_optimizer(optimizer)


def build(batch: int, pixels: int, contender: str, fuses: bool, report: str) -> harness.Step:
    """A step that writes the peaks of its process to a file, in MiB: static, model."""
    import resnet  # noqa: F401  (with Argosy and torch: what is imported is not the model's)

    from argosy.engine.runtime.peak_memory import high_water_mark

    before = psutil.Process().memory_info().rss
    step: Any = argosy(batch, pixels, lambda optimizer: wrapped(optimizer, contender, fuses))
    (executor,) = [c.cell_contents for c in step.__closure__ if hasattr(c.cell_contents, "memory_report")]

    def run() -> object:
        loss: object = step()
        static = executor.memory_report().peak_bytes
        Path(report).write_text(f"{static / 2**20} {((high_water_mark() or 0) - before) / 2**20}")
        return loss

    return run


def table(title: str, results: dict[str, harness.Measured], peaks: dict[str, tuple[float, float]]) -> str:
    """A table in Markdown; ratios against the default."""
    head = "| | best s | median s | static MiB | model MiB | time | static peak | model |"
    lines = [f"## {title}", "", head, "|---|---|---|---|---|---|---|---|"]
    base, base_peaks = results["default"], peaks["default"]
    for name, measured in results.items():
        static, model = peaks[name]
        ratios = measured.best / base.best, static / base_peaks[0], model / base_peaks[1]
        shown = " | ".join(f"{ratio:.2f}" for ratio in ratios)
        lines.append(
            f"| {name} | {measured.best:.2f} | {measured.median:.2f} | {static:,.0f} | {model:,.0f} | {shown} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--batch", type=int, nargs="+", default=[16], help="batch sizes")
    p.add_argument("--pixels", type=int, default=224)
    p.add_argument("--rounds", type=int, default=12)
    p.add_argument("--no_write", action="store_true", help="only print")
    args = p.parse_args()
    text, everything = "", {}
    for batch in args.batch:
        for fuses in (False, True):
            title = f"ResNet50, batch {batch}, {args.pixels} px{', fused' * fuses}"
            print(title, file=sys.stderr)
            folder = Path(tempfile.mkdtemp())
            reports = {name: folder / name for name in CONTENDERS}
            contenders = {
                name: partial(build, contender=name, fuses=fuses, report=str(path))
                for name, path in reports.items()
            }
            results = harness.measure(contenders, args.rounds, batch=batch, pixels=args.pixels)
            peaks = {name: _read(path) for name, path in reports.items()}
            everything[title] = results
            text += table(title, results, peaks) + "\n"
            print(table(title, results, peaks), file=sys.stderr)
    if not args.no_write:
        harness.write("recompute", text, everything)


def _read(path: Path) -> tuple[float, float]:
    static, model = map(float, path.read_text().split())
    path.unlink()
    return static, model


if __name__ == "__main__":
    main()
