"""The row optimizers: the formulas of the dense ops and of torch.optim, with state and steps of each row's own."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from argosy.engine.ops.updates import update_op
from argosy.engine.ps.table.row_optimizers import RowRule, row_kinds

ROWS, DIM, STEPS, LR = 7, 5, 6, 0.1
RATE = torch.tensor(LR)
BETAS = {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-6}
Slots = list[Tensor]
Op = Callable[[Tensor, Tensor, Slots, Tensor], None]

OPS: dict[str, tuple[str, dict[str, float], Op]] = {
    "sgd": ("sgd", {"l2": 0.1}, lambda p, g, s, t: update_op("sgd")(p, g, RATE, 1.0, 0.1)),
    "momentum": (
        "momentum",
        {"mu": 0.8},
        lambda p, g, s, t: update_op("momentum")(p, g, s[0], RATE, 1.0, 0.8, False, 0.0),
    ),
    "nesterov": (
        "momentum",
        {"mu": 0.8, "use_nesterov": 1.0, "l2": 0.1},
        lambda p, g, s, t: update_op("momentum")(p, g, s[0], RATE, 1.0, 0.8, True, 0.1),
    ),
    "adagrad": (
        "adagrad",
        {"epsilon": 1e-3},
        lambda p, g, s, t: update_op("adagrad")(p, g, s[0], RATE, 1.0, 1e-3),
    ),
    "adam": (
        "adam",
        BETAS,
        lambda p, g, s, t: update_op("adam")(p, g, s[0], s[1], t, RATE, 1.0, 0.8, 0.95, 1e-6),
    ),
    "adamw": (
        "adamw",
        {**BETAS, "coeff": 0.1},
        lambda p, g, s, t: update_op("adamw")(p, g, s[0], s[1], t, RATE, 1.0, 0.8, 0.95, 1e-6, 0.1),
    ),
    "adamax": (
        "adamax",
        BETAS,
        lambda p, g, s, t: update_op("adamax")(p, g, s[0], s[1], t, RATE, 1.0, 0.8, 0.95, 1e-6),
    ),
    "rmsprop": (
        "rmsprop",
        {"rho": 0.8, "epsilon": 1e-3},
        lambda p, g, s, t: update_op("rmsprop")(p, g, s[0], None, None, RATE, 1.0, 0.8, 1e-3, 0.0),
    ),
    "rmsprop, centered, momentum": (
        "rmsprop",
        {"rho": 0.8, "epsilon": 1e-3, "centered": 1.0, "momentum": 0.5},
        lambda p, g, s, t: update_op("rmsprop")(p, g, s[0], s[1], s[2], RATE, 1.0, 0.8, 1e-3, 0.5),
    ),
    "adadelta": (
        "adadelta",
        {"rho": 0.8, "epsilon": 1e-3},
        lambda p, g, s, t: update_op("adadelta")(p, g, s[0], s[1], RATE, 1.0, 0.8, 1e-3),
    ),
    "ftrl": (
        "ftrl",
        {"ftrl_l1": 0.1, "ftrl_l2": 0.2},
        lambda p, g, s, t: update_op("ftrl")(p, g, s[0], s[1], RATE, 1.0, 0.1, 0.2, -0.5),
    ),
}

TORCH: dict[str, tuple[str, dict[str, float], Callable[..., torch.optim.Optimizer]]] = {
    "sgd": ("sgd", {"l2": 0.1}, lambda p: torch.optim.SGD(p, LR, weight_decay=0.1)),
    "nesterov": (
        "momentum",
        {"mu": 0.8, "use_nesterov": 1.0, "l2": 0.1},
        lambda p: torch.optim.SGD(p, LR, momentum=0.8, nesterov=True, weight_decay=0.1),
    ),
    "adagrad": (
        "adagrad",
        {"epsilon": 1e-3, "initial_accumulator_value": 0.5, "l2": 0.1},
        lambda p: torch.optim.Adagrad(p, LR, eps=1e-3, initial_accumulator_value=0.5, weight_decay=0.1),
    ),
    "adam": (
        "adam",
        {**BETAS, "l2": 0.1},
        lambda p: torch.optim.Adam(p, LR, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1),
    ),
    "adamw": (
        "adamw",
        {**BETAS, "coeff": 0.1},
        lambda p: torch.optim.AdamW(p, LR, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1),
    ),
    "adadelta": (
        "adadelta",
        {"rho": 0.8, "epsilon": 1e-3},
        lambda p: torch.optim.Adadelta(p, LR, rho=0.8, eps=1e-3),
    ),
}


def rule_of(kind: str, settings: dict[str, float] | None = None) -> RowRule:
    return RowRule(kind, settings or {}, DIM)


def trained(rule: RowRule, first: Tensor, grads: list[Tensor]) -> Tensor:
    records = rule.start(first)
    for grad in grads:
        rule.apply(records, grad, LR)
    return records


@pytest.mark.parametrize("case", OPS)
def test_rows_that_are_touched_every_step_go_as_the_dense_op(case: str) -> None:
    kind, settings, op = OPS[case]
    rule, first = rule_of(kind, settings), torch.randn(ROWS, DIM)
    grads = [torch.randn(ROWS, DIM) for _ in range(STEPS)]
    p, step = first.clone(), torch.zeros(1)
    slots = [torch.zeros(ROWS, DIM) for _ in range((rule.width - DIM) // DIM)]
    for grad in grads:
        op(p, grad, slots, step)
    records = trained(rule, first, grads)
    expected = torch.cat([p, *slots], 1)
    torch.testing.assert_close(records[:, : expected.shape[1]], expected, rtol=1e-6, atol=1e-6)
    if "Count" in rule.fields:
        assert (records[:, -1] == STEPS).all()


@pytest.mark.parametrize("case", TORCH)
def test_rows_that_are_touched_every_step_go_as_torch(case: str) -> None:
    kind, settings, make = TORCH[case]
    first = torch.randn(ROWS, DIM)
    grads = [torch.randn(ROWS, DIM) for _ in range(STEPS)]
    p = torch.nn.Parameter(first.clone())
    optimizer = make([p])
    for grad in grads:
        p.grad = grad.clone()
        optimizer.step()
    records = trained(rule_of(kind, settings), first, grads)
    torch.testing.assert_close(records[:, :DIM], p.detach(), rtol=1e-6, atol=1e-6)


def test_sum_adds_whatever_the_rate() -> None:
    records = torch.ones(2, DIM)
    rule_of("sum").apply(records, torch.full((2, DIM), 0.5), 0.0)
    assert (records == 1.5).all()


@pytest.mark.parametrize("kind", row_kinds())
def test_state_and_steps_belong_to_a_row(kind: str) -> None:
    """Row 0 is touched in every step, row 1 in every third: each goes as if it were alone."""
    rule, first = rule_of(kind), torch.randn(2, DIM)
    records = rule.start(first)
    grads = [torch.randn(2, DIM) for _ in range(STEPS)]
    for step, grad in enumerate(grads):
        touched = [0, 1] if step % 3 == 0 else [0]
        rows = records[touched]
        rule.apply(rows, grad[touched], LR)
        records[touched] = rows
    alone = [
        trained(rule, first[:1], [g[:1] for g in grads]),
        trained(rule, first[1:], [g[1:] for g in grads[::3]]),
    ]
    torch.testing.assert_close(records, torch.cat(alone), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", row_kinds())
def test_gradients_are_left_as_they_are(kind: str) -> None:
    settings: dict[str, Any] = {} if kind == "sum" else {"l2": 0.1}
    rule, grad = rule_of(kind, settings), torch.randn(ROWS, DIM)
    before = grad.clone()
    trained(rule, torch.randn(ROWS, DIM), [grad, grad])
    assert torch.equal(grad, before)
