"""The loss of training in bfloat16 mixed precision against float32, over several seeds.

python benchmarks/amp_accuracy.py --seeds 5

`flowers` is a small ResNet on the drawn flowers, `characters` a small transformer that predicts the next character of
this repository's documentation. A seed sets the initial values and the order of the batches, equally in both
precisions. A loss is the mean over the last tenth of the steps. bfloat16 is as accurate as float32 if the difference of
the means is within the spread of the seeds.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import itertools
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "examples" / "resnet"))

import harness
import numpy as np
import torch
from torch import Tensor, nn

Feed = dict[str, Any]
DOCS = Path(__file__).parent.parent / "docs"
CONTEXT, SMALL = 32, 10


class CharacterModel(nn.Module):
    """A causal transformer."""

    def __init__(self, characters: int, width: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(characters, width), nn.Embedding(CONTEXT, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, characters)
        self.register_buffer("mask", torch.full((CONTEXT, CONTEXT), -torch.inf).triu(1))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.token(x) + self.position(torch.arange(CONTEXT))
        logits: Tensor = self.head(self.encoder(hidden, mask=self.mask))
        return logits


def characters(seed: int, batch: int) -> tuple[Any, Iterator[Feed], Any]:
    """The loss, the batches and the optimizer of the character model."""
    import argosy as paddle

    text = "".join(path.read_text() for path in sorted(DOCS.glob("explanation/*.md")))
    known = sorted(set(text))
    codes = np.array([known.index(c) for c in text])
    torch.manual_seed(seed)
    model = CharacterModel(len(known))
    x = paddle.static.data("x", [batch, CONTEXT], "int64")
    y: Any = paddle.static.data("y", [batch * CONTEXT], "int64")
    loss = nn.functional.cross_entropy(model(x).reshape(batch * CONTEXT, len(known)), y)

    def batches() -> Iterator[Feed]:
        draw = np.random.default_rng(seed)
        while True:
            windows = [codes[i : i + CONTEXT + 1] for i in draw.integers(0, len(codes) - CONTEXT - 1, batch)]
            yield {"x": np.stack([w[:-1] for w in windows]), "y": np.concatenate([w[1:] for w in windows])}

    return loss, batches(), paddle.optimizer.AdamW(3e-3, weight_decay=0.01)


def flowers(seed: int, batch: int, pixels: int = 32) -> tuple[Any, Iterator[Feed], Any]:
    """The loss, the batches and the optimizer of a small ResNet."""
    import resnet

    import argosy as paddle

    resnet.BLOCKS[SMALL] = [1, 1, 1, 1]
    x = paddle.static.data("x", [None, 3, pixels, pixels])
    y = paddle.static.data("y", [None, 1], "int64")
    loss = paddle.nn.functional.cross_entropy(resnet.ResNet(SMALL).net(x, 102), y)
    reader = paddle.dataset.flowers.train(use_xmap=False, image_size=pixels)
    shuffled = paddle.batch(paddle.reader.shuffle(reader, buf_size=1024, seed=seed), batch, drop_last=True)

    def batches() -> Iterator[Feed]:
        for samples in itertools.chain.from_iterable(shuffled() for _ in itertools.count()):
            images = np.stack([s[0] for s in samples]).reshape(-1, 3, pixels, pixels)
            yield {"x": images, "y": np.array([[s[1]] for s in samples], "int64")}

    return loss, batches(), paddle.optimizer.Momentum(0.01, 0.9, weight_decay=1e-4)


def final_loss(task: Callable[..., Any], amp: bool, seed: int, steps: int, batch: int) -> float:
    """The mean loss of the last tenth of the steps."""
    import argosy as paddle

    scope, main, startup = paddle.static.Scope(), paddle.static.Program(), paddle.static.Program()
    with (
        paddle.static.scope_guard(scope),
        paddle.static.program_guard(main, startup),
        paddle.utils.unique_name.guard(),
    ):
        paddle.seed(seed)
        loss, batches, optimizer = task(seed, batch)
        (paddle.static.amp.decorate(optimizer) if amp else optimizer).minimize(loss)
        exe = paddle.static.Executor()
        exe.run(startup)
        losses = [float(exe.run(main, b, [loss])[0]) for b in itertools.islice(batches, steps)]
    return statistics.mean(losses[-max(steps // 10, 1) :])


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--batch", type=int, default=16)
    args = p.parse_args()
    lines = [
        f"Mean loss of the last tenth of {args.steps} steps, batch {args.batch}, {args.seeds} seeds: mean, and "
        "standard deviation over the seeds.",
        "",
        "| | float32 | bfloat16 | difference of the means | spread of float32 (max - min) | bfloat16 within it |",
        "|---|---|---|---|---|---|",
    ]
    results: dict[str, dict[str, harness.Measured]] = {}
    for task in (characters, flowers):
        losses: dict[str, list[float]] = {"float32": [], "bfloat16": []}
        for seed, (name, values) in itertools.product(range(args.seeds), losses.items()):
            values.append(final_loss(task, name == "bfloat16", seed, args.steps, args.batch))
            print(f"{task.__name__} {name}, seed {seed}: {values[-1]:.4f}", file=sys.stderr, flush=True)
        means = {n: statistics.mean(v) for n, v in losses.items()}
        shown = " | ".join(f"{means[n]:.4f} ± {statistics.stdev(v):.4f}" for n, v in losses.items())
        apart, spread = means["bfloat16"] - means["float32"], max(losses["float32"]) - min(losses["float32"])
        within = "yes" if abs(apart) <= spread else "no"
        lines.append(f"| {task.__name__} | {shown} | {apart:+.4f} | {spread:.4f} | {within} |")
        results[f"{task.__name__}, loss of each seed"] = {n: harness.Measured(v) for n, v in losses.items()}
    harness.write("amp-accuracy", "\n".join(lines) + "\n", results)


if __name__ == "__main__":
    main()
