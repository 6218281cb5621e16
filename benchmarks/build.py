"""How long building, differentiating and compiling a program takes, against an older version of Argosy.

python benchmarks/build.py --rounds 5 --before 0940477
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import harness

ROOT = Path(__file__).resolve().parent.parent
BEFORE = "0940477"
CASES = ("fc 200", "fc 800", "resnet50")


def fc(layers: int) -> Any:
    """As many fc layers, and Adam."""
    import argosy as paddle

    hidden = paddle.static.data("x", [None, 16])
    for _ in range(layers):
        hidden = paddle.static.nn.fc(hidden, 16, activation="relu")
    return paddle.mean(hidden), paddle.optimizer.Adam(1e-3)


def resnet50() -> Any:
    """The quick start's ResNet50, and Momentum."""
    sys.path.insert(0, str(ROOT / "examples" / "resnet"))
    import resnet

    import argosy as paddle

    image = paddle.static.data("x", [None, 3, 224, 224])
    label = paddle.static.data("y", [None, 1], "int64")
    out = resnet.ResNet(layers=50).net(input=image, class_dim=102)
    loss = paddle.nn.functional.cross_entropy(input=out, label=label)
    decay = paddle.regularizer.L2Decay(1e-4)
    return loss, paddle.optimizer.Momentum(0.01, 0.9, weight_decay=decay)


def timed(build: Callable[[], Any]) -> list[float]:
    """Seconds of CPU time to build forward, to minimize, and to compile both programs."""
    from argosy import static
    from argosy.engine.runtime.compile import compile_program

    with static.program_guard(static.Program(), static.Program()):
        times = [time.process_time()]
        loss, optimizer = build()
        times.append(time.process_time())
        optimizer.minimize(loss)
        times.append(time.process_time())
        compile_program(static.default_main_program(), [loss])
        compile_program(static.default_startup_program(), [])
        times.append(time.process_time())
    return [later - earlier for earlier, later in pairwise(times)]


def measure(case: str) -> None:
    """In a process of its own: print the times as JSON, after a small program that loads everything."""
    import torch

    import argosy as paddle

    torch.set_num_threads(1)
    paddle.enable_static()
    timed(lambda: fc(3))
    kind, _, layers = case.partition(" ")
    print(json.dumps(timed(resnet50 if kind == "resnet50" else lambda: fc(int(layers)))))


def run(case: str, tree: Path) -> list[float]:
    command = [sys.executable, __file__, "--case", case]
    env = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    out = subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout
    return [float(seconds) for seconds in json.loads(out.splitlines()[-1])]


def table(results: dict[str, dict[str, harness.Measured]], before: str) -> str:
    lines = [f"| CPU time, s, best / median | {before} | now | now / {before} |", "|---|---|---|---|"]
    for case, contenders in results.items():
        old, new = contenders["before"], contenders["now"]
        cells = [f"{m.best:.2f} / {m.median:.2f}" for m in (old, new)]
        lines.append(
            f"| {case} | {cells[0]} | {cells[1]} | {new.best / old.best:.2f} / {new.median / old.median:.2f} |"
        )
    for who in ("before", "now"):
        long, short = results["fc 800"][who], results["fc 200"][who]
        ratio = f"{long.best / short.best:.2f} / {long.median / short.median:.2f}"
        lines.append(f"\n800 layers against 200, {who}: {ratio} (linear: 4).")
    return "\n".join(lines) + "\n"


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--rounds", type=int, default=5, help="times that each contender is run")
    p.add_argument("--before", default=BEFORE, help="the commit to compare with")
    p.add_argument("--case", choices=CASES, help="measure this one in this process, print it, and end")
    options = p.parse_args()
    if options.case:
        measure(options.case)
        return
    results = {case: {who: harness.Measured() for who in ("before", "now")} for case in CASES}
    with tempfile.TemporaryDirectory() as folder:
        archive = ["git", "archive", options.before, "argosy"]
        packed = subprocess.run(archive, cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "x", "-C", folder], input=packed, check=True)
        for number in range(options.rounds):
            for case in CASES:
                for who, tree in (("before", Path(folder)), ("now", ROOT)):
                    results[case][who].seconds.append(sum(run(case, tree)))
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
    harness.write("build", table(results, options.before), results)


if __name__ == "__main__":
    main()
