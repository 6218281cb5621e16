"""A training step in one process: Argosy fused, Argosy unfused, torch eager and torch.compile.

python benchmarks/fusion.py --models resnet50 mobilenet --batch 8 16 --rounds 8

Momentum with weight decay, 224 px, everything in channels_last; torch's optimizer is the fused one.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "examples" / "resnet"))
sys.path.insert(0, str(Path(__file__).parent.parent / "examples" / "mobilenet"))

import harness
import torch
import torch.nn.functional as F
from resnet50_step import CLASSES, batch_of

FUSIONS = (
    "fuse_relu_depthwise_conv",
    "fuse_bn_act_ops",
    "fuse_bn_add_act_ops",
    "fuse_elewise_add_act_ops",
    "fuse_all_optimizer_ops",
)


def argosy(
    model: str, batch: int, pixels: int, switches: dict[str, Any], flags: dict[str, Any]
) -> harness.Step:
    """The program of the examples, compiled by a build strategy with these switches."""
    import mobilenet
    import resnet

    import argosy as paddle

    paddle.set_flags(flags)
    x, y = batch_of(batch, pixels)
    image = paddle.static.data("x", [batch, 3, pixels, pixels], "float32")
    label = paddle.static.data("y", [batch, 1], "int64")
    nets = {"resnet50": resnet.ResNet(50).net, "mobilenet": mobilenet.MobileNetV1().net}
    loss = paddle.nn.functional.cross_entropy(nets[model](image, CLASSES), label)
    decay = paddle.regularizer.L2Decay(1e-4)
    paddle.optimizer.Momentum(0.01, 0.9, weight_decay=decay).minimize(loss)
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(paddle.static.default_startup_program())
    build = paddle.static.BuildStrategy()
    for name, value in switches.items():
        setattr(build, name, value)
    main: Any = paddle.static.CompiledProgram(paddle.static.default_main_program(), build_strategy=build)
    return lambda: exe.run(main, feed={"x": x, "y": y}, fetch_list=[loss])


def plain(model: str, batch: int, pixels: int) -> harness.Step:
    """All fusions off."""
    return argosy(model, batch, pixels, dict.fromkeys(FUSIONS, False), {})


def fused(model: str, batch: int, pixels: int) -> harness.Step:
    return argosy(model, batch, pixels, dict.fromkeys(FUSIONS, True), {})


def aten_alone(model: str, batch: int, pixels: int) -> harness.Step:
    """No fusion, and no choice of kernels for convolutions either."""
    from argosy.engine.ir.build import Build
    from argosy.engine.ir.program import default_main_program
    from argosy.engine.passes import FUSION_NAMES

    step = plain(model, batch, pixels)
    default_main_program().build = Build(without_passes=frozenset({"choose_kernels", *FUSION_NAMES}))
    default_main_program().touch()
    return step


def searched(model: str, batch: int, pixels: int) -> harness.Step:
    return argosy(model, batch, pixels, dict.fromkeys(FUSIONS, True), {"FLAGS_cudnn_exhaustive_search": True})


def through_inductor(model: str, batch: int, pixels: int) -> harness.Step:
    return argosy(model, batch, pixels, {"compiler": "inductor", "fuse_all_optimizer_ops": True}, {})


def eager(
    model: str, batch: int, pixels: int, wrap: Callable[[Any], Any] = lambda network: network
) -> harness.Step:
    """torch eager, model and input in channels_last, with the fused optimizer."""
    from torch_mobilenet import TorchMobileNetV1
    from torch_resnet import TorchResNet

    x, y = batch_of(batch, pixels)
    torch_net: Any = TorchResNet(50, CLASSES) if model == "resnet50" else TorchMobileNetV1(CLASSES)
    torch_net = torch_net.to(memory_format=torch.channels_last)
    network = wrap(torch_net)
    optimizer = torch.optim.SGD(torch_net.parameters(), 0.01, 0.9, weight_decay=1e-4, fused=True)

    def step() -> float:
        optimizer.zero_grad()
        loss = F.cross_entropy(network(x.contiguous(memory_format=torch.channels_last)), y.squeeze(1))
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def compiled(model: str, batch: int, pixels: int) -> harness.Step:
    """The same through torch.compile."""
    return eager(model, batch, pixels, torch.compile)


CONTENDERS: dict[str, Any] = {
    "argosy, all fusions": fused,
    "argosy, all fusions, searched": searched,
    "argosy": plain,
    "argosy, ATen's convolutions": aten_alone,
    "argosy, inductor": through_inductor,
    "eager": eager,
    "torch.compile": compiled,
}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument(
        "--models", nargs="+", choices=["resnet50", "mobilenet"], default=["resnet50", "mobilenet"]
    )
    p.add_argument("--batch", type=int, nargs="+", default=[8, 16], help="batch sizes")
    p.add_argument("--pixels", type=int, default=224)
    p.add_argument("--rounds", type=int, default=8)
    p.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    args = p.parse_args()
    chosen = {name: CONTENDERS[name] for name in args.contenders}
    text, results = "", {}
    for model in args.models:
        for batch in args.batch:
            title = f"{model}, batch {batch}, {args.pixels} px"
            print(title, file=sys.stderr)
            results[title] = harness.measure(
                chosen, args.rounds, model=model, batch=batch, pixels=args.pixels
            )
            text += harness.table(title, results[title], args.contenders[0]) + "\n"
    harness.write("fusion", text, results)


if __name__ == "__main__":
    main()
