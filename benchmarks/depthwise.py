"""MobileNetV1: depthwise convolutions shape by shape, the block around them, and whole training steps.

python benchmarks/depthwise.py --what kernels blocks steps --batch 8 --rounds 20

kernels   relu + ATen's convolution against relu_depthwise, and both without the relu, forward and backward
blocks    batch norm, relu, depthwise convolution, forward and backward together: which fusion is the best one
steps     a training step in one process: Argosy fused and unfused, torch eager in channels_last
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "examples" / "mobilenet"))

import harness
import torch
import torch.nn.functional as F
from mobilenet import BLOCKS, MobileNetV1
from torch_mobilenet import TorchMobileNetV1

from argosy.engine.ops.bn_act import bn_act, bn_act_backward
from argosy.engine.ops.relu_depthwise import (
    depthwise,
    depthwise_backward,
    relu_depthwise,
    relu_depthwise_backward,
)

aten = torch.ops.aten
Found = dict[str, harness.Measured]
CLASSES = 102
BOTH = [True, True]


def shapes(pixels: int) -> dict[tuple[int, int, int], int]:
    """(channels, pixels per side, stride) of the depthwise convolutions, and how often each comes."""
    counts: dict[tuple[int, int, int], int] = {}
    side = pixels // 2
    for _, channels, _, stride in BLOCKS:
        counts[channels, side, stride] = counts.get((channels, side, stride), 0) + 1
        side //= stride
    return counts


class Layer:
    """One depthwise convolution with the batch norm before it, in channels_last."""

    def __init__(self, batch: int, channels: int, side: int, stride: int) -> None:
        torch.manual_seed(0)
        self.x = torch.randn(batch, channels, side, side).contiguous(memory_format=torch.channels_last)
        self.relu = torch.relu(self.x)
        self.weight = torch.randn(channels, 1, 3, 3)
        self.scale, self.offset = torch.ones(channels), torch.zeros(channels)
        self.window = ([stride, stride], [1, 1])
        self.aten_window = (*self.window, [1, 1], False, [0, 0], channels)
        self.dy = torch.randn_like(self.aten(self.x))

    def aten(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = aten.convolution(x, self.weight, None, *self.aten_window)
        return y

    def aten_backward(self, x: torch.Tensor) -> Any:
        return aten.convolution_backward(self.dy, x, self.weight, None, *self.aten_window, [*BOTH, False])

    def ours_backward(self, x: torch.Tensor, relu: bool = False) -> Any:
        op = relu_depthwise_backward if relu else depthwise_backward
        return op(self.dy, x, self.weight, *self.window, BOTH)

    def kernels(self) -> dict[str, harness.Step]:
        """Ours and ATen's, forward and backward, with and without the relu."""
        return {
            "forward": lambda: depthwise(self.x, self.weight, *self.window),
            "forward, ATen": lambda: self.aten(self.x),
            "relu + forward": lambda: relu_depthwise(self.x, self.weight, *self.window),
            "relu + forward, ATen": lambda: self.aten(torch.relu(self.x)),
            "backward": lambda: self.ours_backward(self.x),
            "backward, ATen": lambda: self.aten_backward(self.x),
            "relu + backward": lambda: self.ours_backward(self.x, relu=True),
            "relu + backward, ATen": lambda: aten.threshold_backward(
                self.aten_backward(self.relu)[0], self.relu, 0
            ),
        }

    def blocks(self) -> dict[str, harness.Step]:
        """Batch norm, relu and convolution, forward and backward, fused in different ways."""
        return {
            "bn + relu_depthwise": self._relu_in_convolution,
            "bn_act + depthwise": partial(self._relu_in_norm, self._ours, self.ours_backward),
            "bn_act + ATen": partial(self._relu_in_norm, self.aten, self.aten_backward),
            "bn + relu + ATen": self._unfused,
        }

    def _ours(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = depthwise(x, self.weight, *self.window)
        return y

    def _relu_in_norm(self, forward: Callable[..., Any], backward: Callable[..., Any]) -> Any:
        y, mean, invstd = bn_act(self.x, self.scale, self.offset, None, 1e-5, "relu")
        forward(y)
        states = (self.scale, self.offset, mean, invstd)
        return bn_act_backward(backward(y)[0], None, self.x, None, *states, "relu", [True] * 3)

    def _norm(self) -> Any:
        return aten.native_batch_norm(self.x, self.scale, self.offset, None, None, True, 0.1, 1e-5)

    def _norm_backward(self, dy: torch.Tensor, mean: torch.Tensor, invstd: torch.Tensor) -> Any:
        return aten.native_batch_norm_backward(
            dy, self.x, self.scale, None, None, mean, invstd, True, 1e-5, [True] * 3
        )

    def _relu_in_convolution(self) -> Any:
        y, *statistics = self._norm()
        relu_depthwise(y, self.weight, *self.window)
        return self._norm_backward(self.ours_backward(y, relu=True)[0], *statistics)

    def _unfused(self) -> Any:
        y, *statistics = self._norm()
        relu = torch.relu_(y)
        self.aten(relu)
        return self._norm_backward(aten.threshold_backward(self.aten_backward(relu)[0], relu, 0), *statistics)


def alternate(steps: dict[str, harness.Step], rounds: int) -> Found:
    """In one process, one call each in turn."""
    results = {name: harness.Measured() for name in steps}
    for step in steps.values():
        step()
    for _ in range(rounds):
        for name, step in steps.items():
            began = time.perf_counter()
            step()
            results[name].seconds.append(time.perf_counter() - began)
    return results


def kernels(batch: int, pixels: int, rounds: int) -> tuple[str, Found]:
    """How many times as fast as ATen's our kernels are, a line for each shape."""
    names = ["forward", "relu + forward", "backward", "relu + backward"]
    lines = [f"| depthwise, batch {batch} | times |" + "".join(f" {name} |" for name in names)]
    lines += ["|---" * (2 + len(names)) + "|"]
    whole: Found = {}
    for (channels, side, stride), times in shapes(pixels).items():
        results = alternate(Layer(batch, channels, side, stride).kernels(), rounds)
        row = f"| {channels} x {side} x {side}, stride {stride} | {times} |"
        lines.append(row + _ratios(results, names))
        _add(whole, results, times)
    lines.append(f"| all, weighted | {len(BLOCKS)} |" + _ratios(whole, names))
    return "ATen's time over ours, best (median):\n\n" + "\n".join(lines) + "\n\n", whole


def _ratios(results: Found, names: list[str]) -> str:
    pairs = [(results[name], results[f"{name}, ATen"]) for name in names]
    return "".join(f" {a.best / o.best:.2f} ({a.median / o.median:.2f}) |" for o, a in pairs)


def _add(whole: Found, results: Found, times: int) -> None:
    """Add the rounds up, so that `whole` is the time of all layers."""
    for name, measured in results.items():
        old = whole.setdefault(name, harness.Measured([0.0] * len(measured.seconds)))
        ordered = sorted(measured.seconds)
        old.seconds = [a + times * b for a, b in zip(old.seconds, ordered, strict=True)]


def blocks(batch: int, pixels: int, rounds: int) -> tuple[str, Found]:
    """The sum over all blocks of MobileNetV1."""
    whole: Found = {}
    for shape, times in shapes(pixels).items():
        _add(whole, alternate(Layer(batch, *shape).blocks(), rounds), times)
    title = f"batch norm, relu, depthwise convolution, both ways, all {len(BLOCKS)} blocks, batch {batch}"
    return harness.table(title, whole, "bn + relu_depthwise") + "\n", whole


def argosy(batch: int, pixels: int, fused: tuple[str, ...] = ()) -> harness.Step:
    """The program of examples/mobilenet, with these switches of the build strategy."""
    import argosy as paddle

    x, y = _batch_of(batch, pixels)
    image = paddle.static.data("x", [None, 3, pixels, pixels], "float32")
    label = paddle.static.data("y", [None, 1], "int64")
    loss = paddle.nn.functional.cross_entropy(MobileNetV1().net(image, CLASSES), label)
    paddle.optimizer.Momentum(0.01, 0.9, weight_decay=paddle.regularizer.L2Decay(1e-4)).minimize(loss)
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(paddle.static.default_startup_program())
    build = paddle.static.BuildStrategy()
    for switch in ("fuse_relu_depthwise_conv", "fuse_bn_act_ops", "fuse_all_optimizer_ops"):
        setattr(build, switch, switch in fused)
    main: Any = paddle.static.CompiledProgram(paddle.static.default_main_program(), build_strategy=build)
    return lambda: exe.run(main, feed={"x": x, "y": y}, fetch_list=[loss])


def eager(batch: int, pixels: int) -> harness.Step:
    """torch eager in channels_last with the fused optimizer."""
    x, y = _batch_of(batch, pixels)
    x = x.contiguous(memory_format=torch.channels_last)
    model: Any = TorchMobileNetV1(CLASSES)
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, 0.9, weight_decay=1e-4, fused=True)

    def step() -> float:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y.squeeze(1))
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def _batch_of(batch: int, pixels: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(batch, 3, pixels, pixels), torch.randint(0, CLASSES, (batch, 1))


def steps(batch: int, pixels: int, rounds: int) -> tuple[str, Found]:
    others = ("fuse_bn_act_ops", "fuse_all_optimizer_ops")
    contenders: dict[str, Callable[..., harness.Step]] = {
        "all fusions": partial(argosy, fused=("fuse_relu_depthwise_conv", *others)),
        "without relu + depthwise": partial(argosy, fused=others),
        "no fusion": argosy,
        "eager channels_last": eager,
    }
    results = harness.measure(contenders, rounds, batch=batch, pixels=pixels)
    return harness.table(f"MobileNetV1, batch {batch}, {pixels} px", results, "all fusions") + "\n", results


def main() -> None:
    parts = {"kernels": kernels, "blocks": blocks, "steps": steps}
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--what", nargs="+", choices=list(parts), default=list(parts))
    p.add_argument("--batch", type=int, nargs="+", default=[8], help="batch sizes")
    p.add_argument("--pixels", type=int, default=224)
    p.add_argument("--rounds", type=int, default=20)
    p.add_argument("--keep", action="store_true", help="write the result under benchmarks/results")
    args = p.parse_args()
    text, results = "", {}
    for batch in args.batch:
        for what in args.what:
            more, results[f"{what}, batch {batch}"] = parts[what](batch, args.pixels, args.rounds)
            text += more
    if args.keep:
        harness.write("depthwise", text, results)
    else:
        print(text)


if __name__ == "__main__":
    main()
