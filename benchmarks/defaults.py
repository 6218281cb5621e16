"""What a user gets who sets nothing: Argosy's defaults against torch eager in channels_last and torch.compile.

python benchmarks/defaults.py --models resnet50 mobilenet --batch 8 16 --rounds 12

first start     a process with an empty cache of choices trains until the background search is finished, or for
                --search-s seconds: when the first step ended, and what share of the time the search took
rounds          argosy               the defaults, in a process that starts after that
                argosy, first start  the defaults with the choices of the rules
                argosy, unfused      all fusions off, and the choices of the rules
                eager, torch.compile channels_last, with the fused optimizer
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import os
import shutil
import sys
import tempfile
import time
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "examples" / "resnet"))
sys.path.insert(0, str(Path(__file__).parent.parent / "examples" / "mobilenet"))

import fusion
import harness

FIRST, UNFUSED = "argosy, first start", "argosy, unfused"


def argosy(
    model: str, batch: int, pixels: int, cache: str = "", searches: bool = False, fuses: bool = True
) -> harness.Step:
    """The program of the examples through a plain Executor; with `fuses` False, all fusions off."""
    os.environ["ARGOSY_CACHE"] = cache
    os.environ["ARGOSY_BACKGROUND_SEARCH"] = str(int(searches))
    if not fuses:
        return fusion.argosy(model, batch, pixels, dict.fromkeys(fusion.FUSIONS, False), {})
    return fusion.argosy(model, batch, pixels, {}, {})


def search(connection: Connection, model: str, batch: int, pixels: int, cache: str, limit_s: float) -> None:
    """In a process: train until the search is finished; send when the first step ended and what the search took."""
    from argosy.engine.kernels.choices import of_process

    step = argosy(model, batch, pixels, cache, searches=True)
    began = time.perf_counter()
    step()
    first_s, minute, ends = time.perf_counter() - began, 0.0, began + limit_s
    background = of_process().background
    assert background is not None
    num_keys = len(background.trials)
    while background.trials and time.perf_counter() < ends:
        step()
        if time.perf_counter() < began + 60:
            minute = background.spent_s / (time.perf_counter() - began)
    connection.send((first_s, minute, background.spent_s, num_keys - len(background.trials), num_keys))


def first_start(model: str, batch: int, pixels: int, cache: str, limit_s: float) -> str:
    """Run the search, and describe it."""
    process, connection = harness.start(search, model, batch, pixels, cache, limit_s)
    first_s, minute, spent_s, settled, num_keys = connection.recv()
    process.join()
    return (
        f"First start: the first step, with compilation, took {first_s:.2f} s; the search took {minute:.1%} of the "
        f"first minute, and {spent_s:.1f} s for {settled} of {num_keys} choices.\n\n"
    )


def prepared(folder: str) -> str:
    """A cache with the built kernels and no choices."""
    from argosy.engine.kernels.shared_library import built

    kernels = Path(folder) / "kernels"
    kernels.mkdir(parents=True)
    shutil.copy(built(), kernels)
    return folder


def compare(model: str, batch: int, args: argparse.Namespace) -> tuple[str, dict[str, harness.Measured]]:
    """The text and the times of one model and batch size."""
    with tempfile.TemporaryDirectory() as folder:
        searched, rules = prepared(f"{folder}/searched"), prepared(f"{folder}/rules")
        text = first_start(model, batch, args.pixels, searched, args.search_s)
        contenders: dict[str, Any] = {
            "argosy": partial(argosy, cache=searched),
            FIRST: partial(argosy, cache=rules),
            UNFUSED: partial(argosy, cache=rules, fuses=False),
            "eager": fusion.eager,
            "torch.compile": fusion.compiled,
        }
        chosen = {name: contenders[name] for name in contenders if name not in args.without}
        results = harness.measure(chosen, args.rounds, model=model, batch=batch, pixels=args.pixels)
    title = f"{model}, batch {batch}, {args.pixels} px"
    return harness.table(title, results, "argosy") + "\n" + text, results


def main() -> None:
    models = ["resnet50", "mobilenet"]
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", nargs="+", choices=models, default=models)
    p.add_argument("--batch", type=int, nargs="+", default=[8, 16], help="batch sizes")
    p.add_argument("--pixels", type=int, default=224)
    p.add_argument("--rounds", type=int, default=12)
    p.add_argument("--search-s", type=float, default=300.0, help="how long the first start trains at most")
    p.add_argument("--without", nargs="+", default=[], help="contenders to leave out")
    args = p.parse_args()
    for model in args.models:
        text, results = "", {}
        for batch in args.batch:
            print(f"{model}, batch {batch}", file=sys.stderr)
            more, results[f"{model}, batch {batch}"] = compare(model, batch, args)
            text += more
        harness.write(f"defaults-{model}", text, results)


if __name__ == "__main__":
    main()
