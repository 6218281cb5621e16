"""What watching a job costs: ResNet50, 2 ranks on this host, with all measurements and views on, and with all off.

python benchmarks/watch_overhead.py --rounds 40

On: records, samples and watched values on both ranks; a launcher's monitor that reads them, with TensorBoard and
Prometheus; the dashboard with a page that streams. Off: ARGOSY_METRICS=0. Both take turns in rounds of a few steps; the
views read the records of the ranks that run.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import distributed_step
import harness

ON, OFF = "everything on", "everything off"


def watched(batch: int, pixels: int, directory: str) -> harness.Step:
    """A rank that writes records, and watches its loss."""
    os.environ["ARGOSY_METRICS_DIR"] = directory
    step: Any = distributed_step.argosy(batch, pixels)
    import argosy
    from argosy.engine.ir.variable import Variable

    (loss,) = [c.cell_contents for c in step.__closure__ if isinstance(c.cell_contents, Variable)]
    argosy.metrics.watch(loss)
    return step  # type: ignore[no-any-return]


def unwatched(batch: int, pixels: int, directory: str) -> harness.Step:
    """A rank that writes nothing."""
    os.environ["ARGOSY_METRICS"] = "0"
    return distributed_step.argosy(batch, pixels)


@contextlib.contextmanager
def views(directory: str) -> Iterator[None]:
    """The processes that read the records: what fleetrun runs, and a client of the dashboard."""
    child = subprocess.Popen([sys.executable, Path(__file__).parent / "watch" / "views.py", directory])
    try:
        yield
    finally:
        child.terminate()
        child.wait()


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=40)
    p.add_argument("--steps", type=int, default=10, help="steps of a round")
    p.add_argument("--batch", type=int, default=2)
    p.add_argument("--pixels", type=int, default=64)
    p.add_argument(
        "--views", action=argparse.BooleanOptionalAction, default=True, help="else the records alone"
    )
    args = p.parse_args()
    title = f"ResNet50, 2 ranks on one host, batch {args.batch} each, {args.pixels} px"
    title += "" if args.views else ", records without views"
    reading = views if args.views else contextlib.nullcontext
    with tempfile.TemporaryDirectory() as directory, reading(directory):
        results = harness.measure(
            {ON: watched, OFF: unwatched},
            args.rounds,
            args.steps,
            2,
            batch=args.batch,
            pixels=args.pixels,
            directory=directory,
        )
    harness.write(
        "watch-overhead" if args.views else "records-overhead",
        harness.table(title, results, ON),
        {title: results},
    )


if __name__ == "__main__":
    main()
