"""ctc_loss is torch's of the log-softmax; hsigmoid_loss and npair_loss are the formulas, written out."""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import default_main_program
from argosy.engine.ir.variable import Variable
from argosy.engine.runtime.executor import Executor
from argosy.nn import functional
from argosy.tensor import to_tensor

Agree = Callable[..., None]


def test_ctc_loss_is_torch_s() -> None:
    program = default_main_program()
    x = program.data("x", [None, 2, 5], "float32")
    labels, steps, lengths = (
        program.data("labels", [2, 3], "int32"),
        program.data("steps", [2], "int64"),
        program.data("lengths", [2], "int64"),
    )
    outs = [functional.ctc_loss(x, labels, steps, lengths, reduction=r) for r in ("none", "sum", "mean")]
    logits = torch.randn(7, 2, 5)
    fed = torch.tensor([[1, 2, 2], [3, 1, 0]]), torch.tensor([7, 5]), torch.tensor([3, 2])
    feed = dict(zip(("labels", "steps", "lengths"), (t.numpy() for t in fed), strict=True))
    feed["labels"] = feed["labels"].astype("int32")
    none, total, mean = Executor().run(feed={"x": logits.numpy(), **feed}, fetch_list=outs)
    each = F.ctc_loss(logits.log_softmax(-1), *fed, reduction="none")
    np.testing.assert_allclose(none, each, rtol=1e-5)
    np.testing.assert_allclose(total, [each.sum()], rtol=1e-5)
    np.testing.assert_allclose(mean, [(each / fed[2]).mean()], rtol=1e-5)


def path_cost(x: torch.Tensor, label: int, classes: int, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Walk from the leaf to the root of the complete tree."""
    leaf, cost, steps = label + classes, torch.zeros(()), 0
    while leaf > 1:
        score = w[leaf // 2 - 1] @ x + b[leaf // 2 - 1, 0]
        cost = cost + F.softplus(score) - (leaf % 2) * score
        leaf, steps = leaf // 2, steps + 1
    return cost + ((classes - 1).bit_length() - steps) * math.log(2)


def test_hsigmoid_loss_adds_the_costs_of_the_path(agree: Agree) -> None:
    labels = [4, 0, 2]
    agree(
        lambda x, w, b: functional.hsigmoid_loss(x, _constant([[c] for c in labels]), 5, w, b),
        lambda x, w, b: torch.stack(
            [path_cost(row, c, 5, w, b) for row, c in zip(x, labels, strict=True)]
        ).reshape(3, 1),
        (3, 4),
        (4, 4),
        (4, 1),
    )


def test_hsigmoid_loss_takes_a_tree(agree: Agree) -> None:
    def expected(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        score = x @ w.T
        first = F.softplus(score[0, 2]) - score[0, 2] + F.softplus(score[0, 0])
        return torch.stack([first, F.softplus(score[1, 2]) + math.log(2)]).reshape(2, 1)

    agree(
        lambda x, w: functional.hsigmoid_loss(
            x, _constant([[0], [1]]), 3, w, None, _constant([[2, 0], [2, -1]]), _constant([[1, 0], [0, -1]])
        ),
        expected,
        (2, 4),
        (3, 4),
    )


def test_npair_loss_is_the_formula(agree: Agree) -> None:
    def expected(a: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        target = torch.tensor([[0.5, 0, 0.5], [0, 1, 0], [0.5, 0, 0.5]])
        entropy = F.cross_entropy(a @ p.T, target, reduction="none").unsqueeze(1)
        penalty = 0.25 * 0.002 * ((a**2).sum(1).mean() + (p**2).sum(1).mean())
        return ((target * entropy).sum(0).mean() + penalty).reshape(1)

    agree(lambda a, p: functional.npair_loss(a, p, _constant([7, 8, 7])), expected, (3, 4), (3, 4))


def test_unsupported_arguments_raise() -> None:
    x = default_main_program().data("x", [2, 2, 3], "float32")
    with pytest.raises(ConfigError, match="use mean, sum or none"):
        functional.ctc_loss(x, x, x, x, reduction="max")
    with pytest.raises(ConfigError, match="norm_by_times"):
        functional.ctc_loss(x, x, x, x, norm_by_times=True)
    with pytest.raises(ConfigError, match="give both"):
        functional.hsigmoid_loss(x, x, 3, x, path_table=x)


def _constant(values: object) -> Variable:

    variable: Variable = to_tensor(values)
    return variable
