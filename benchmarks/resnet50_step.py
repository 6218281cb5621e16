"""A ResNet50 training step in one process: Argosy against torch eager, plain and channels_last.

python benchmarks/resnet50_step.py --batch 8 16 --rounds 12
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "examples" / "resnet"))

import harness
import torch
import torch.nn.functional as F
from torch_resnet import TorchResNet

CLASSES = 102


def batch_of(batch: int, pixels: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(batch, 3, pixels, pixels), torch.randint(0, CLASSES, (batch, 1))


def argosy(batch: int, pixels: int, wrap: Callable[[Any], Any] = lambda optimizer: optimizer) -> harness.Step:
    """The program of examples/resnet, written NCHW; `wrap` may make the optimizer a distributed one."""
    import resnet

    import argosy as paddle

    x, y = batch_of(batch, pixels)
    image = paddle.static.data("x", [None, 3, pixels, pixels], "float32")
    label = paddle.static.data("y", [None, 1], "int64")
    loss = paddle.nn.functional.cross_entropy(resnet.ResNet(50).net(image, CLASSES), label)
    decay = paddle.regularizer.L2Decay(1e-4)
    wrap(paddle.optimizer.Momentum(0.01, 0.9, weight_decay=decay)).minimize(loss)
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(paddle.static.default_startup_program())
    main = paddle.static.default_main_program()
    return lambda: exe.run(main, feed={"x": x, "y": y}, fetch_list=[loss])


def eager(
    batch: int,
    pixels: int,
    memory_format: torch.memory_format,
    wrap: Callable[[Any], Any] = lambda model: model,
) -> harness.Step:
    """torch eager with the fused optimizer; `wrap` may make the model a distributed one."""
    x, y = batch_of(batch, pixels)
    model: Any = TorchResNet(50, CLASSES)
    model = wrap(model.to(memory_format=memory_format))
    optimizer = torch.optim.SGD(model.parameters(), 0.01, 0.9, weight_decay=1e-4, fused=True)

    def step() -> float:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x.contiguous(memory_format=memory_format)), y.squeeze(1))
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def eager_plain(batch: int, pixels: int) -> harness.Step:
    """torch eager as it is, with the fused optimizer."""
    return eager(batch, pixels, torch.contiguous_format)


def eager_channels_last(batch: int, pixels: int) -> harness.Step:
    """torch eager, model and input in channels_last, with the fused optimizer."""
    return eager(batch, pixels, torch.channels_last)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--batch", type=int, nargs="+", default=[8, 16], help="batch sizes")
    p.add_argument("--pixels", type=int, default=224)
    p.add_argument("--rounds", type=int, default=12)
    args = p.parse_args()
    contenders: dict[str, Any] = {
        "argosy": argosy,
        "eager channels_last": eager_channels_last,
        "eager plain": eager_plain,
    }
    text, results = "", {}
    for batch in args.batch:
        title = f"ResNet50, batch {batch}, {args.pixels} px"
        print(title, file=sys.stderr)
        results[title] = harness.measure(contenders, args.rounds, batch=batch, pixels=args.pixels)
        text += harness.table(title, results[title], "argosy") + "\n"
    harness.write("resnet50-step", text, results)


if __name__ == "__main__":
    main()
