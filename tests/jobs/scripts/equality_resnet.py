"""A ResNet of four blocks at 32 px on N ranks or on one, and the same model with torch's DDP; for test_equality.py."""

# SPDX-License-Identifier: Apache-2.0
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed
import torch.nn.functional as F

import argosy as paddle
from argosy.engine.ir import names

ROOT = Path(__file__).parents[3]
sys.path += [str(ROOT / "examples/resnet"), str(ROOT / "benchmarks")]
import resnet  # noqa: E402  (the two folders hold scripts)
import torch_resnet  # noqa: E402

BATCH, STEPS, CLASSES, RATE = 12, 2, 10, 2.0**-7
LAYERS = 10
resnet.BLOCKS[LAYERS] = torch_resnet.BLOCKS[LAYERS] = [1, 1, 1, 1]  # one block of every shape of ResNet18
Arrays = dict[str, np.ndarray[Any, Any]]


def data(step: int, dtype: str) -> Arrays:
    drawn = np.random.default_rng(step)
    images = drawn.standard_normal((BATCH, 3, 32, 32)).astype(dtype)
    return {"x": images, "y": drawn.integers(0, CLASSES, (BATCH, 1))}


def share(whole: Arrays, rank: int, ranks: int) -> Arrays:
    return {key: np.split(value, ranks)[rank] for key, value in whole.items()}


def weights(dtype: str) -> torch_resnet.TorchResNet:
    """The torch model whose weights every run begins with."""
    torch.manual_seed(1)
    return torch_resnet.TorchResNet(LAYERS, CLASSES).to(getattr(torch, dtype))


def train(dtype: str, wrap: Callable[[Any], Any], rank: int = 0, ranks: int = 1) -> Arrays:
    """The static program's losses, first gradients and last variables; `wrap` makes an optimizer fleet's."""
    scope, main, startup = paddle.static.Scope(), paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup), names.guard(), paddle.static.scope_guard(scope):
        x = paddle.static.data("x", [BATCH // ranks, 3, 32, 32], dtype)
        y = paddle.static.data("y", [BATCH // ranks, 1], "int64")
        loss = paddle.nn.functional.cross_entropy(resnet.ResNet(LAYERS).net(x, CLASSES), y)
        _, pairs = wrap(paddle.optimizer.Momentum(RATE, 0.9, weight_decay=1e-4)).minimize(loss)
        exe = paddle.static.Executor()
        exe.run(startup)
        _copy(weights(dtype), scope)
        result: Arrays = {}
        losses = []
        for step in range(STEPS):
            fetched = exe.run(main, share(data(step, dtype), rank, ranks), [loss, *(g for _, g in pairs)])
            losses.append(fetched[0])
            if step == 0:
                result = {f"grad {p.name}": g for (p, _), g in zip(pairs, fetched[1:], strict=True)}
        result |= {f"after {name}": scope.get(name).numpy().copy() for name in main.persistables()}
    return {**result, "losses": np.array(losses)}


def _copy(model: torch_resnet.TorchResNet, scope: Any) -> None:
    known = torch_resnet.paddle_names(LAYERS)
    for key, value in model.state_dict().items():
        if key in known:
            scope.find_var(known[key]).get_tensor().set(torch_resnet.as_paddle(key, value).numpy())


def train_with_ddp(dtype: str, rank: int, ranks: int, store_file: Path) -> Arrays:
    """Losses and first gradients of torch's DistributedDataParallel, from the same weights."""
    store = torch.distributed.FileStore(str(store_file), ranks)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    model = weights(dtype)
    # It would send rank 0's statistics to the others in every step; neither Paddle nor we do.
    ddp = torch.nn.parallel.DistributedDataParallel(model, forward_sync_buffers=False)
    optimizer = torch.optim.SGD(ddp.parameters(), RATE, 0.9, weight_decay=1e-4)
    known, result = torch_resnet.paddle_names(LAYERS), {}
    losses = []
    for step in range(STEPS):
        mine = {k: torch.from_numpy(v) for k, v in share(data(step, dtype), rank, ranks).items()}
        optimizer.zero_grad()
        loss = F.cross_entropy(ddp(mine["x"]), mine["y"].squeeze(1))
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            grads = {key: torch_resnet.as_paddle(key, p.grad) for key, p in model.named_parameters()}
            result = {f"grad {known[key]}": grad.numpy().copy() for key, grad in grads.items()}
        optimizer.step()
    torch.distributed.destroy_process_group()
    return {**result, "losses": np.array(losses)}
