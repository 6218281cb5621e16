"""Training steps in bfloat16 mixed precision: Argosy against torch.autocast, and against its own float32.

python benchmarks/amp_step.py resnet50 --batch 8 16 --compiled      against autocast eager and compiled, and float32
python benchmarks/amp_step.py transformer                           6 layers, 512 wide, 8 heads, batch 8 x 128
python benchmarks/amp_step.py ranks                                 two ranks, batch 8 each, against DDP with autocast
python benchmarks/amp_step.py memory --batch 8 16                   peak memory, against float32

On a CPU without AVX512-BF16 or AMX torch emulates bfloat16 products: then times mean nothing, and the result says so.
`static` memory is the peak that `memory_report` computes, `model` the high-water mark of the process less what it had
before the model was built. benchmarks/amp_accuracy.py compares losses.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import sys
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import harness
import psutil  # type: ignore[import-untyped]  # it has no annotations
import torch
import torch.nn.functional as F
from resnet50_step import CLASSES, argosy, batch_of
from torch_resnet import TorchResNet

FUSIONS = ("fuse_bn_act_ops", "fuse_bn_add_act_ops", "fuse_elewise_add_act_ops", "fuse_all_optimizer_ops")
Results = dict[str, dict[str, harness.Measured]]


def fused(optimizer: Any, amp: bool, **switches: Any) -> Any:
    """The optimizer under a strategy with all fusions, in float32 or in mixed precision."""
    import argosy as paddle
    from argosy.distributed import fleet

    strategy = fleet.DistributedStrategy()
    build = paddle.static.BuildStrategy()
    for name in FUSIONS:
        setattr(build, name, True)
    strategy.build_strategy, strategy.amp = build, amp
    for name, value in switches.items():
        setattr(strategy, name, value)
    fleet.init(is_collective=True, strategy=strategy)
    return fleet.distributed_optimizer(optimizer)


def argosy_resnet(batch: int, pixels: int, amp: bool, **switches: Any) -> harness.Step:
    """Argosy's ResNet50 with all fusions."""
    return argosy(batch, pixels, partial(fused, amp=amp, **switches))


def autocast_resnet(
    batch: int, pixels: int, compiles: bool = False, wrap: Callable[[Any], Any] = lambda model: model
) -> harness.Step:
    """torch.autocast, channels_last, with the fused optimizer."""
    x, y = batch_of(batch, pixels)
    x = x.contiguous(memory_format=torch.channels_last)
    model: Any = TorchResNet(50, CLASSES)
    model = wrap(model.to(memory_format=torch.channels_last))
    optimizer = torch.optim.SGD(model.parameters(), 0.01, 0.9, weight_decay=1e-4, fused=True)
    called: Any = torch.compile(model) if compiles else model
    return _autocast_step(optimizer, lambda: F.cross_entropy(called(x), y.squeeze(1)))


def ddp_resnet(batch: int, pixels: int, bucket_mb: float) -> harness.Step:
    """The same under DistributedDataParallel."""
    torch.distributed.init_process_group("gloo")

    def wrap(model: torch.nn.Module) -> torch.nn.Module:
        return torch.nn.parallel.DistributedDataParallel(
            model, static_graph=True, gradient_as_bucket_view=True, bucket_cap_mb=bucket_mb
        )

    return autocast_resnet(batch, pixels, wrap=wrap)


def _autocast_step(optimizer: torch.optim.Optimizer, loss_of: Callable[[], torch.Tensor]) -> harness.Step:
    def step() -> float:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def encoder(batch: int, length: int) -> tuple[torch.nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    return model, torch.randn(batch, length, 512)


def argosy_transformer(batch: int, length: int, amp: bool) -> harness.Step:
    """torch's encoder, recorded by Argosy."""
    import argosy as paddle

    model, x = encoder(batch, length)
    loss = (model(paddle.static.data("x", [None, length, 512])) ** 2).mean()
    fused(paddle.optimizer.AdamW(1e-4), amp).minimize(loss)
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(paddle.static.default_startup_program())
    main = paddle.static.default_main_program()
    return lambda: exe.run(main, feed={"x": x}, fetch_list=[loss])


def autocast_transformer(batch: int, length: int) -> harness.Step:
    """The same encoder under torch.autocast."""
    model, x = encoder(batch, length)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    return _autocast_step(optimizer, lambda: F.mse_loss(model(x).float(), torch.zeros_like(x)))


def compared(title: str, contenders: dict[str, Any], rounds: int, **arguments: Any) -> tuple[str, Results]:
    print(title, file=sys.stderr)
    results = harness.measure(contenders, rounds, **arguments)
    return harness.table(title, results, "argosy amp") + "\n", {title: results}


def resnet50(args: argparse.Namespace, batch: int) -> tuple[str, Results]:
    contenders: dict[str, Any] = {
        "argosy amp": partial(argosy_resnet, amp=True),
        "autocast": autocast_resnet,
        "argosy float32": partial(argosy_resnet, amp=False),
    }
    if args.compiled:
        contenders["autocast compiled"] = partial(autocast_resnet, compiles=True)
    title = f"ResNet50 in bfloat16, batch {batch}, {args.pixels} px"
    return compared(title, contenders, args.rounds, batch=batch, pixels=args.pixels)


def transformer(args: argparse.Namespace, batch: int) -> tuple[str, Results]:
    contenders: dict[str, Any] = {
        "argosy amp": partial(argosy_transformer, amp=True),
        "autocast": autocast_transformer,
        "argosy float32": partial(argosy_transformer, amp=False),
    }
    title = f"Transformer encoder in bfloat16, 6 layers, 512 wide, batch {batch} x {args.length}"
    return compared(title, contenders, args.rounds, batch=batch, length=args.length)


def ranks(args: argparse.Namespace, batch: int) -> tuple[str, Results]:
    contenders: dict[str, Any] = {
        "argosy amp": partial(argosy_resnet, amp=True),
        "argosy amp, overlap": partial(argosy_resnet, amp=True, sync_nccl_allreduce=False),
        **{f"DDP, buckets of {mb} MB": partial(ddp_resnet, bucket_mb=mb) for mb in (1, 25, 100)},
    }
    title = f"ResNet50 in bfloat16, 2 ranks, batch {batch} each, {args.pixels} px"
    return compared(title, contenders, args.rounds, ranks=2, batch=batch, pixels=args.pixels)


# --- memory -------------------------------------------------------------------------------------------


def send_peaks(connection: Connection, batch: int, pixels: int, amp: bool) -> None:
    """Train one step, and send the peaks in MiB: static, model."""
    import resnet  # noqa: F401  (with Argosy and torch: what is imported is not the model's)

    from argosy.engine.runtime.peak_memory import high_water_mark

    before = psutil.Process().memory_info().rss
    step: Any = argosy_resnet(batch, pixels, amp)
    step()
    (executor,) = [c.cell_contents for c in step.__closure__ if hasattr(c.cell_contents, "memory_report")]
    static = executor.memory_report().peak_bytes
    connection.send((static / 2**20, ((high_water_mark() or 0) - before) / 2**20))


def memory(args: argparse.Namespace, batch: int) -> tuple[str, Results]:
    title = f"Peak memory of a ResNet50 step, batch {batch}, {args.pixels} px, all fusions"
    print(title, file=sys.stderr)
    peaks: dict[str, tuple[float, float]] = {}
    for name, amp in (("argosy float32", False), ("argosy amp", True)):
        process, connection = harness.start(send_peaks, batch, args.pixels, amp)
        peaks[name] = connection.recv()
        process.join()
    (static, model), lines = peaks["argosy float32"], [f"### {title}", ""]
    lines += ["| | static MiB | of float32 | model MiB | of float32 |", "|---|---|---|---|---|"]
    for name, (a, b) in peaks.items():
        lines.append(f"| {name} | {a:,.0f} | {a / static:.2f} | {b:,.0f} | {b / model:.2f} |")
    measured = {name: harness.Measured(peak_mib=peak) for name, (_, peak) in peaks.items()}
    measured |= {f"{name}, static": harness.Measured(peak_mib=peak) for name, (peak, _) in peaks.items()}
    return "\n".join(lines) + "\n\n", {title: measured}


def caveat() -> str:
    """A line for the result if this CPU has no 16-bit arithmetic."""
    if torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported():
        return ""
    return (
        "**This CPU has no AVX512-BF16 or AMX: torch emulates bfloat16, so bfloat16 times mean nothing. Static memory "
        "does not depend on it; model memory has the emulation's buffers.**\n\n"
    )


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cases: dict[str, Any] = {f.__name__: f for f in (resnet50, transformer, ranks, memory)}
    p.add_argument("what", choices=tuple(cases))
    p.add_argument("--batch", type=int, nargs="+", default=[8], help="batch sizes")
    p.add_argument("--pixels", type=int, default=224)
    p.add_argument("--length", type=int, default=128, help="of the transformer's sequences")
    p.add_argument("--rounds", type=int, default=12)
    p.add_argument(
        "--compiled", action="store_true", help="measure torch.compile, too, which takes minutes to compile"
    )
    args = p.parse_args()
    text = caveat()
    results: Results = {}
    print(text, file=sys.stderr)
    for batch in args.batch:
        table, measured = cases[args.what](args, batch)
        text, results = text + table, results | measured
    harness.write(f"amp-{args.what}", text, results)


if __name__ == "__main__":
    main()
