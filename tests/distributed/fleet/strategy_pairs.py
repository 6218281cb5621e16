"""Every pair of strategies: what two ranks train, and what plain torch says that they should.

    python -m tests.distributed.fleet.strategy_pairs       trains all pairs, and writes docs/reference/strategy-pairs.md

`SWITCHES` names the strategies and their settings. `Reference` trains the same two ranks in one process without Argosy;
each strategy is a few lines of it.
"""

# SPDX-License-Identifier: Apache-2.0
import itertools
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import argosy as paddle
from argosy.distributed import fleet
from argosy.engine.errors import ConfigError
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.runtime.scope import Scope, scope_guard
from tests.ranks import ForkServer

RANKS, STEPS, RATE, MU, DECAY = 2, 4, 0.05, 0.9, 0.01
WIDE = 130
"""fc_0.w_0 has 130 x 130 elements: enough for dgc to compress it."""
Tensors = dict[str, Tensor]
Switches = dict[str, Any]
REDUCE = paddle.static.BuildStrategy.ReduceStrategy.Reduce

SWITCHES: dict[str, Switches] = {
    "amp": {"amp": True},
    "recompute": {"recompute": True, "recompute_configs": {"checkpoints": "auto"}},
    "gradient_merge": {"gradient_merge": True, "gradient_merge_configs": {"k_steps": 2}},
    "localsgd": {"localsgd": True, "localsgd_configs": {"k_steps": 2, "begin_step": 1}},
    "adaptive_localsgd": {"adaptive_localsgd": True, "adaptive_localsgd_configs": {"begin_step": 1}},
    "lars": {"lars": True},
    "lamb": {"lamb": True},
    "dgc": {"dgc": True, "dgc_configs": {"rampup_begin_step": 1, "sparsity": [0.9]}},
    "sharding": {"sharding": True},
    "fp16_allreduce": {"fp16_allreduce": True},
    "sync_batch_norm": {"sync_batch_norm": True},
    "overlap": {"sync_nccl_allreduce": False, "nccl_comm_num": 2},
    "fusions": {"fuse_all_optimizer_ops": True, "fuse_bn_act_ops": True, "fuse_elewise_add_act_ops": True},
    "reduce_mode": {"reduce_strategy": REDUCE},
}
"""The switches by the name in the table; `overlap`, `fusions` and `reduce_mode` are names of several settings."""
APART = {"amp": 1e-2, "fp16_allreduce": 2e-3}
"""How far parameters may be apart after all steps: 16-bit products and sums round."""


def batch(step: int, rank: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(10 * step + rank)
    return torch.randn(8, WIDE, generator=draw), torch.randint(0, 3, (8, 1), generator=draw)


# --- plain torch --------------------------------------------------------------------------------------


class Reference:
    """Two ranks in one process."""

    def __init__(self, values: Tensors, on: frozenset[str]) -> None:
        self.on = on
        self.values = [{name: value.clone() for name, value in values.items()} for _ in range(RANKS)]
        self.states: list[dict[str, Tensors]] = [{} for _ in range(RANKS)]
        """For each rank and parameter: velocity, or moments, or DGC's u and v."""

    def run(self) -> list[Tensors]:
        """The parameters of each rank after all steps."""
        merged: list[Tensors] = []
        k, last, first_loss = 1, 0, 0.0
        for step in range(STEPS):
            with torch.autocast("cpu", torch.bfloat16, enabled="amp" in self.on):
                losses, grads = self._gradients(step)
            if "localsgd" in self.on or "adaptive_localsgd" in self.on:
                for rank in range(RANKS):
                    self._update(rank, grads[rank], step)
                first_loss = first_loss or losses
                if self._is_due(step + 1, last, k):
                    self._average()
                    last = step + 1
                    if step:
                        k = min(16, max(1, int(np.ceil(np.sqrt(losses / first_loss)))))
                continue
            merged.append({name: (grads[0][name] + grads[1][name]) / RANKS for name in grads[0]})
            if "dgc" in self.on and step:
                self._compressed(grads, merged.pop())
                continue
            if "gradient_merge" in self.on and len(merged) < 2:
                continue
            mean = {name: sum(g[name] for g in merged) / len(merged) for name in merged[0]}
            merged = []
            for rank in range(RANKS):
                self._update(rank, mean, step)  # type: ignore[arg-type]  # sums of tensors
        return self.values

    def _is_due(self, step: int, last: int, k: int) -> bool:
        if step <= 1:
            return True
        return (step - 1) % 2 == 0 if "localsgd" in self.on else step - last >= k

    def _average(self) -> None:
        for name in self.values[0]:
            mean = (self.values[0][name] + self.values[1][name]) / RANKS
            for values in self.values:
                values[name] = mean.clone()

    def _gradients(self, step: int) -> tuple[float, list[Tensors]]:
        """The mean loss, and the gradients of each rank's own loss."""
        leaves = [
            {n: v.clone().requires_grad_() for n, v in self.values[rank].items()} for rank in range(RANKS)
        ]
        hidden = [batch(step, rank)[0] @ leaves[rank]["fc_0.w_0"] for rank in range(RANKS)]
        stats = [torch.cat(hidden)] * RANKS if "sync_batch_norm" in self.on else hidden
        losses = []
        for rank, (h, seen) in enumerate(zip(hidden, stats, strict=True)):
            variance, mean = torch.var_mean(seen, 0, unbiased=False)
            normal = (h - mean) / (variance + 1e-5).sqrt()
            scaled = normal * leaves[rank]["hidden.w_0"] + leaves[rank]["hidden.b_0"]
            out = F.relu(scaled) @ leaves[rank]["fc_1.w_0"] + leaves[rank]["fc_1.b_0"]
            losses.append(F.cross_entropy(out, batch(step, rank)[1].squeeze(1)))
        total = losses[0] + losses[1]  # with sync_batch_norm the loss of a rank depends on the inputs of both
        grads = torch.autograd.grad(total, [leaf for tensors in leaves for leaf in tensors.values()])
        count = len(leaves[0])
        parts = [dict(zip(leaves[0], grads[r * count : (r + 1) * count], strict=True)) for r in range(RANKS)]
        return total.item() / RANKS, parts

    def _update(self, rank: int, grads: Tensors, step: int) -> None:
        for name, grad in grads.items():
            state = self.states[rank].setdefault(name, {})
            rule = self._lars if "lars" in self.on else self._lamb if "lamb" in self.on else self._momentum
            value = self.values[rank][name]
            self.values[rank][name] = value - rule(value, grad, state)

    def _momentum(self, value: Tensor, grad: Tensor, state: Tensors) -> Tensor:
        state["v"] = MU * state.get("v", torch.zeros_like(value)) + grad + DECAY * value
        return RATE * state["v"]

    def _lars(self, value: Tensor, grad: Tensor, state: Tensors) -> Tensor:
        grad = grad + DECAY * value
        size, slope = value.norm(), grad.norm()
        rate = RATE * (0.001 * size / (slope + 0.0005 * size) if size > 0 and slope > 0 else 1.0)
        state["v"] = MU * state.get("v", torch.zeros_like(value)) + rate * (grad + 0.0005 * value)
        return state["v"]

    def _lamb(self, value: Tensor, grad: Tensor, state: Tensors) -> Tensor:
        grad = grad + DECAY * value
        t = float(state.setdefault("t", torch.zeros(())).add_(1))
        state["m"] = 0.9 * state.get("m", torch.zeros_like(value)) + 0.1 * grad
        state["s"] = 0.999 * state.get("s", torch.zeros_like(value)) + 0.001 * grad * grad
        direction = state["m"] / (1 - 0.9**t) / ((state["s"] / (1 - 0.999**t)).sqrt() + 1e-8) + 0.01 * value
        size, length = value.norm(), direction.norm()
        return RATE * (size / length if size > 0 and length > 0 else 1.0) * direction

    def _compressed(self, grads: list[Tensors], mean: Tensors) -> None:
        """A step of DGC after the ramp-up: the largest elements of large gradients, the mean of the others."""
        large = [name for name in mean if mean[name].numel() >= 16384]
        for rank in range(RANKS):
            self._update(rank, {name: grad for name, grad in mean.items() if name not in large}, 1)
        for name in large:
            sent = torch.zeros_like(mean[name])
            for rank in range(RANKS):
                state, value = self.states[rank][name], self.values[rank][name]
                u = state.pop("v") / RANKS if "v" in state else state["u"]
                u = MU * u + (grads[rank][name] + DECAY * value) / RANKS
                total = state.get("residual", torch.zeros_like(value)) + u
                count = round(total.numel() * 0.1)
                mask = total.abs() >= total.abs().flatten().sort(descending=True).values[count - 1]
                sent += total * mask
                state["u"], state["residual"] = u * ~mask, total * ~mask
            for values in self.values:
                values[name] = values[name] - RATE * sent


# --- on the ranks -------------------------------------------------------------------------------------


def strategy_of(on: Iterable[str]) -> fleet.DistributedStrategy:
    strategy = fleet.DistributedStrategy()
    for switches in (SWITCHES[name] for name in on):
        for name, value in switches.items():
            setattr(strategy if name in strategy.fields else strategy.build_strategy, name, value)
    return strategy


def trained(on: frozenset[str]) -> tuple[Tensors, Tensors]:
    """The parameters before and after some steps of this rank."""
    main, startup, scope = Program("main"), Program("startup"), Scope()
    main.random_seed = startup.random_seed = 7
    with program_guard(main, startup), names.guard(), scope_guard(scope):
        x, y = paddle.static.data("x", [8, WIDE]), paddle.static.data("y", [8, 1], "int64")
        linear = paddle.static.nn.fc(x, WIDE, bias_attr=False)
        hidden = paddle.static.nn.batch_norm(linear, act="relu", name="hidden")
        loss = paddle.nn.functional.cross_entropy(paddle.static.nn.fc(hidden, 3), y)
        decay = paddle.regularizer.L2Decay(DECAY)
        adam, momentum = paddle.optimizer.Adam, paddle.optimizer.Momentum
        inner = adam(RATE, weight_decay=decay) if "lamb" in on else momentum(RATE, MU, weight_decay=decay)
        fleet.distributed_optimizer(inner, strategy_of(on)).minimize(loss)
        exe = paddle.static.Executor()
        exe.run(startup)

        def parameters() -> Tensors:
            return {p.name: scope.get(p.name).clone() for p in main.all_parameters()}

        before = parameters()
        for step in range(STEPS):
            images, labels = batch(step, fleet.worker_index())
            exe.run(main, feed={"x": images, "y": labels})
        return before, parameters()


def outcome(on: frozenset[str]) -> str:
    """`trains`, `raises` with the error of two strategies that exclude each other, or `differs` from torch."""
    try:
        before, after = trained(on)
    except ConfigError as e:
        return f"raises: {e}"
    rank = fleet.worker_index()
    wanted = Reference(before, on).run()[rank]
    tolerance = max([APART[name] for name in on if name in APART], default=5e-5)
    if "lamb" in on:
        tolerance *= 5  # it divides gradients by their own size, so that the rounding of small ones counts
    apart = {name: (after[name] - value).abs().max().item() for name, value in wanted.items()}
    wrong = [f"{name} is off by {off:.1e}" for name, off in apart.items() if not off < tolerance]
    return f"differs on rank {rank}: {', '.join(wrong)}" if wrong else "trains"


def train_all() -> None:
    """On each rank: all pairs, and each strategy by itself; which write what came of them."""
    fleet.init(is_collective=True)
    torch.set_num_threads(1)
    outcomes = {}
    for pair in (*((name, name) for name in SWITCHES), *itertools.combinations(SWITCHES, 2)):
        outcomes[" ".join(pair)] = outcome(frozenset(pair))
    Path(os.environ["OUTCOMES"], f"{fleet.worker_index()}.json").write_text(json.dumps(outcomes))


def outcomes(ranks: ForkServer, folder: Path) -> dict[str, str]:
    """What came of each pair on two real ranks, by "first second"."""
    ranks.check(RANKS, train_all, timeout_s=300.0, OUTCOMES=str(folder))
    first, second = (json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS))
    return {pair: second[pair] if first[pair] == "trains" else first[pair] for pair in first}


# --- the page -----------------------------------------------------------------------------------------

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "strategy-pairs.md"
MARKS = "<!-- pairs: begin -->\n", "<!-- pairs: end -->\n"


def table(found: dict[str, str]) -> str:
    """The matrix in Markdown, and the reasons of the pairs that exclude each other."""
    lines = ["| |" + "".join(f" {number} |" for number, _ in enumerate(SWITCHES, 1))]
    lines.append("|---|" + "---|" * len(SWITCHES))
    reasons = []
    for row, first in enumerate(SWITCHES, 1):
        cells = []
        for second in SWITCHES:
            text = found.get(f"{first} {second}") or found[f"{second} {first}"]
            cells.append("✓" if text == "trains" else "✗")
            if text != "trains" and f"{first} {second}" in found:
                reasons.append(f"- `{first}`, `{second}`: {text.removeprefix('raises: ')}")
        lines.append(f"| {row} `{first}` |" + "".join(f" {cell} |" for cell in cells))
    return "\n".join([*lines, "", "Pairs that raise, and what they say:", "", *reasons]) + "\n"


def with_table(page: str, found: dict[str, str]) -> str:
    before, rest = page.split(MARKS[0])
    return before + MARKS[0] + "\n" + table(found) + "\n" + MARKS[1] + rest.split(MARKS[1])[1]


def main(run: Callable[[ForkServer, Path], dict[str, str]] = outcomes) -> None:
    import tempfile

    fork_server = ForkServer()
    with tempfile.TemporaryDirectory() as folder:
        PAGE.write_text(with_table(PAGE.read_text(), run(fork_server, Path(folder))))
    fork_server.close()
    print(f"wrote {PAGE.name}")


if __name__ == "__main__":
    main()
