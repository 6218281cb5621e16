"""The update of ResNet50's 161 parameters: Argosy's fused ops against torch's optimizers.

python benchmarks/fused_optimizer.py --rounds 40
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import harness
import torch
from torch_resnet import TorchResNet

RATE, MU, DECAY, BETAS, EPSILON = 0.1, 0.9, 1e-4, (0.9, 0.999), 1e-8


def parameters() -> list[torch.nn.Parameter]:
    """With gradients; convolution weights in channels_last, as both sides train them."""
    torch.manual_seed(0)
    model = TorchResNet(50).to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # not annotated
    parameters = list(model.parameters())
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    return parameters


def argosy_momentum() -> harness.Step:
    """What the runtime calls for a fused_momentum node."""
    from argosy.engine.ops.op_spec import OpSpec
    from argosy.engine.ops.updates import FUSED, update_op

    params = [p.detach() for p in parameters()]
    grads = [torch.randn_like(p) for p in params]
    velocities = [torch.zeros_like(p) for p in params]
    factors, decays = [1.0] * len(params), [DECAY] * len(params)
    kernel, rate = OpSpec.known[FUSED[update_op("momentum")]].kernel, torch.tensor([RATE])
    return lambda: kernel(params, grads, velocities, rate, factors, MU, False, decays, [])


def argosy_adam() -> harness.Step:
    """What the runtime calls for a fused_adam node."""
    from argosy.engine.ops.op_spec import OpSpec
    from argosy.engine.ops.updates import FUSED, update_op

    params = [p.detach() for p in parameters()]
    grads = [torch.randn_like(p) for p in params]
    means, squares = ([torch.zeros_like(p) for p in params] for _ in range(2))
    steps, factors = [torch.zeros(1) for _ in params], [1.0] * len(params)
    kernel, rate = OpSpec.known[FUSED[update_op("adam")]].kernel, torch.tensor([RATE])
    return lambda: kernel(params, grads, means, squares, steps, rate, factors, *BETAS, EPSILON, [])


def torch_momentum(**how: bool) -> harness.Step:
    return torch.optim.SGD(parameters(), RATE, MU, weight_decay=DECAY, **how).step


def torch_adam(**how: bool) -> harness.Step:
    return torch.optim.Adam(parameters(), RATE, BETAS, EPSILON, **how).step


CASES: dict[str, tuple[Callable[..., harness.Step], Callable[..., harness.Step]]] = {
    "momentum": (argosy_momentum, torch_momentum),
    "adam": (argosy_adam, torch_adam),
}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=40)
    p.add_argument("--steps", type=int, default=5, help="updates in a round")
    args = p.parse_args()
    text, results = "", {}
    for name, (ours, theirs) in CASES.items():
        title = f"{name}, ResNet50"
        print(title, file=sys.stderr)
        contenders: dict[str, Callable[..., harness.Step]] = {
            "argosy": ours,
            "torch fused": partial(theirs, fused=True),
            "torch foreach": partial(theirs, foreach=True),
        }
        results[title] = harness.measure(contenders, args.rounds, args.steps)
        text += harness.table(title, results[title], "argosy") + "\n"
    harness.write("fused-optimizer", text, results)


if __name__ == "__main__":
    main()
