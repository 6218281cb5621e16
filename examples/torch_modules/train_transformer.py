"""A small transformer, written for torch, trained as a static program: it learns to sort digits.

    python train_transformer.py --steps 300

The batch size and the length are both unknown to the program: `shape=[None, None]`.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse

import numpy as np
import torch
from torch import Tensor, nn

import argosy as paddle

DIGITS = 10


class Sorter(nn.Module):
    """An encoder that gives for every place the digit which belongs there."""

    def __init__(self, width: int = 64, layers: int = 2, heads: int = 4, longest: int = 64) -> None:
        super().__init__()
        self.token = nn.Embedding(DIGITS, width)
        self.position = nn.Embedding(longest, width)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, DIGITS)

    def forward(self, digits: Tensor) -> Tensor:
        positions = torch.arange(digits.shape[1], device=digits.device)
        logits: Tensor = self.head(self.encoder(self.token(digits) + self.position(positions)))
        return logits


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--batch_size", type=int, default=64)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--amp", action="store_true", help="train in bfloat16 mixed precision")
    args = p.parse_args()

    paddle.enable_static()
    digits = paddle.static.data("digits", [None, None], "int64")
    wanted = paddle.static.data("sorted", [None, None], "int64")
    logits = Sorter()(digits)
    flat = paddle.reshape(logits, [-1, DIGITS])
    loss = paddle.nn.functional.cross_entropy(flat, paddle.reshape(wanted, [-1]))
    right = paddle.mean(paddle.cast(paddle.equal(paddle.argmax(logits, axis=-1), wanted), "float32"))
    schedule = paddle.optimizer.lr.LinearWarmup(
        paddle.optimizer.lr.CosineAnnealingDecay(args.lr, args.steps),
        warmup_steps=20,
        start_lr=0.0,
        end_lr=args.lr,
    )
    clip = paddle.nn.ClipGradByGlobalNorm(1.0)
    optimizer = paddle.optimizer.AdamW(schedule, weight_decay=0.01, grad_clip=clip)
    (paddle.static.amp.decorate(optimizer) if args.amp else optimizer).minimize(loss)

    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(paddle.static.default_startup_program())
    draw = np.random.default_rng(0)
    progress = paddle.utils.TrainingProgress(print_every=20)
    share = 0.0
    for step, _ in progress.batches(range(args.steps), "sorting", total=args.steps):
        length = int(draw.integers(4, 17))  # another length every time
        given = draw.integers(0, DIGITS, (args.batch_size, length))
        feed = {"digits": given, "sorted": np.sort(given, axis=1)}
        cost, share = (float(v) for v in exe.run(feed=feed, fetch_list=[loss, right]))
        schedule.step()
        progress.line(step, f"[step {step}] length: {length}, loss: {cost:.5f}, right: {share:.5f}")
    print(f"digits in the right place: {share:.3f}")


if __name__ == "__main__":
    main()
