"""Requests whose tensors are not those of their kind are rejected with a message, and change nothing."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from argosy.engine.errors import RejectedError
from argosy.engine.ps.protocol import messages
from argosy.engine.ps.trainer.trainer import Trainer
from tests.engine.ps.served import SETTINGS, served, step

IDS, ROWS, W = torch.tensor([5, 7]), torch.ones(2, 2), torch.ones(3)
PUSH = messages.Push(1, ["w"], [1.0])
PUSH_ROWS, PULL_ROWS = messages.PushRows(1, "table", 1.0), messages.PullRows(0, "table")
INITIALISE = messages.Initialise(["w"], ["statistics"])
CASES: list[tuple[messages.Message, Sequence[Tensor], str]] = [
    (PUSH, [], r"push has 0 tensors, and needs 1 \(w\)"),
    (PUSH, [W, W], "push has 2 tensors, and needs 1"),
    (PUSH, [W.double()], r"block 'w' is torch.float32\[3\] and received torch.float64\[3\]"),
    (PUSH, [torch.ones(4)], r"block 'w' is torch.float32\[3\] and received torch.float32\[4\]"),
    (PUSH_ROWS, [IDS], r"push_rows has 1 tensors, and needs 2 \(ids, rows\)"),
    (
        PUSH_ROWS,
        [IDS.float(), ROWS],
        r"the tensor ids of push_rows is float32\[2\], and must be int64 with 1 dim",
    ),
    (PUSH_ROWS, [IDS, ROWS.double()], "the tensor rows of push_rows is float64"),
    (PUSH_ROWS, [IDS, torch.ones(2, 3)], r"rows of 'table' are \[2, 3\] for \[2\] ids"),
    (PUSH_ROWS, [IDS, torch.ones(3, 2)], r"rows of 'table' are \[3, 2\] for \[2\] ids"),
    (PULL_ROWS, [], r"pull_rows has 0 tensors, and needs 1 \(ids\)"),
    (
        PULL_ROWS,
        [IDS.view(1, 2)],
        r"the tensor ids of pull_rows is int64\[1, 2\], and must be int64 with 1 dim",
    ),
    (INITIALISE, [W], r"initialise has 1 tensors, and needs 2 \(w, statistics\)"),
    (INITIALISE, [torch.ones(4), W], r"block 'w' is torch.float32\[3\] and received torch.float32\[4\]"),
    (messages.ReduceNorm(1, 0, 1), [], "reduce_norm has 0 tensors, and needs 1"),
    (messages.ReduceNorm(1, 0, 1), [W], r"of reduce_norm is float32\[3\], and must be a number"),
    (messages.Send(0, 0), [], "send has 0 tensors, and needs 1"),
    (messages.Send(0, 0), [W], r"of send is float32\[3\], and must be uint8 with 1 dimension"),
    (messages.Pull(0, ["w"]), [W], "pull has 1 tensors, and needs 0"),
]


def test_wrong_tensors_are_rejected_and_the_next_step_is_right() -> None:
    with served(trainers=1, initialised_by_trainer=True) as (service, plan):
        trainer = Trainer(plan, 0, SETTINGS)
        for message, tensors, text in CASES:
            with pytest.raises(RejectedError, match=text):
                trainer.connection.start(0, message, tensors).wait("a test")
        meta = messages.meta(PUSH) | {"rates": []}
        with pytest.raises(RejectedError, match="invalid Push message: 1 blocks and 0 rates"):
            trainer.connection.client.call(0, "push", meta, [W])
        assert not service.state.is_initialised
        trainer.connection.start(0, INITIALISE, [torch.zeros(3), W]).wait("first values")
        assert step(trainer, W).tolist() == [-1.0, -1.0, -1.0]
        assert len(service.state.tables["table"]) == 0
        trainer.close()
