"""A step of a three-layer MLP: what Argosy's runtime costs where the kernels are small.

python benchmarks/mlp_step.py --rounds 60
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import sys
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import harness
import torch
import torch.nn.functional as F

SIZES = (784, 256, 128, 10)


def batch_of(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(batch, SIZES[0]), torch.randint(0, SIZES[-1], (batch, 1))


def argosy(batch: int) -> harness.Step:
    """Three static.nn.fc layers and Momentum."""
    import argosy as paddle

    x, y = batch_of(batch)
    image = paddle.static.data("x", [None, SIZES[0]], "float32")
    label = paddle.static.data("y", [None, 1], "int64")
    h = paddle.static.nn.fc(image, SIZES[1], activation="relu")
    h = paddle.static.nn.fc(h, SIZES[2], activation="relu")
    loss = paddle.nn.functional.cross_entropy(paddle.static.nn.fc(h, SIZES[3]), label)
    paddle.optimizer.Momentum(0.01, 0.9).minimize(loss)
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(paddle.static.default_startup_program())
    main = paddle.static.default_main_program()
    return lambda: exe.run(main, feed={"x": x, "y": y}, fetch_list=[loss])


def _eager(batch: int, fused: bool) -> harness.Step:
    x, y = batch_of(batch)
    layers = [torch.nn.Linear(a, b) for a, b in pairwise(SIZES)]
    model = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2])
    optimizer = torch.optim.SGD(model.parameters(), 0.01, 0.9, fused=fused)

    def step() -> float:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y.squeeze(1))
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def eager(batch: int) -> harness.Step:
    """torch eager with its default SGD."""
    return _eager(batch, False)


def eager_fused(batch: int) -> harness.Step:
    """torch eager with the fused SGD."""
    return _eager(batch, True)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--batch", type=int, nargs="+", default=[1, 32, 128], help="batch sizes")
    p.add_argument("--rounds", type=int, default=60)
    args = p.parse_args()
    text, results = "", {}
    for batch in args.batch:
        title = f"MLP {'-'.join(map(str, SIZES))}, batch {batch}"
        print(title, file=sys.stderr)
        contenders = {"argosy": argosy, "eager": eager, "eager fused": eager_fused}
        results[title] = harness.measure(contenders, args.rounds, steps=50, batch=batch)
        text += harness.table(title, results[title], "argosy") + "\n"
    harness.write("mlp-step", text, results)


if __name__ == "__main__":
    main()
