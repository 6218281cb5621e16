"""Models for one process of jobs with hashed ids: they hold the rows that exist, and answer as the servers do."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import argosy as paddle
from argosy import fluid
from argosy.distributed import fleet
from argosy.distributed.fleet.utils.ps_util import DistributedInfer
from argosy.engine.errors import RejectedError
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.ps.trainer.trainer import current
from argosy.engine.runtime.scope import global_scope
from tests import fleet_jobs as jobs
from tests.ranks import ForkServer

HASHED, SMALL = 5_000_015_000, 30
TRAINED = np.array([[7, 4_999_999_999], [0, 123_456_789_012], [29, -3], [7, 31]])
"""Ids of a table without bounds; 0 is the padding."""
UNSEEN = np.array([[8, 4_999_999_998], [0, 2**62], [-(2**62), 7]])


def net(rows: int) -> tuple[Any, Any]:
    """Two ids give a number; rows begin with random values."""
    attr = paddle.ParamAttr(name="table", initializer=paddle.nn.initializer.Uniform(-1.0, 1.0))
    ids = paddle.static.data("ids", [None, 2], "int64")
    result = paddle.static.nn.sparse_embedding(ids, [rows, 3], padding_idx=0, param_attr=attr)
    out = paddle.static.nn.fc(paddle.reshape(result, [-1, 6]), 1)
    return out, paddle.mean(out * out)


def exports() -> None:
    """Train on some ids, export the model, and then let the servers predict."""
    given = jobs.case()
    rank, folder = jobs.take_role(given["workers"]), given["folder"]
    fleet.init()
    default_main_program().random_seed = 5
    out, loss = net(given["rows"])
    strategy = jobs.strategy_of({"a_sync": False})
    fleet.distributed_optimizer(paddle.optimizer.SGD(0.5), strategy).minimize(loss)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        return
    exe = paddle.static.Executor()
    exe.run(default_startup_program())
    fleet.init_worker()
    for _ in range(2):
        exe.run(feed={"ids": TRAINED})
    fleet.save_inference_model(exe, f"{folder}/model", ["ids"], [out])
    assert [name for name in global_scope().values_of() if name.startswith("table")] == []
    with pytest.raises(RejectedError, match="'table' has . rows on server .*, more than the 2 that"):
        current().rows.ids("table", 2)
    program = DistributedInfer(default_main_program()).get_dist_infer_program()
    predicted = {
        name: exe.run(program, feed={"ids": ids}, fetch_list=[out.name])[0]
        for name, ids in {"trained": TRAINED, "unseen": UNSEEN}.items()
    }
    fleet.stop_worker()
    np.savez(f"{folder}/{rank}.npz", **predicted)


@pytest.mark.parametrize("rows", [HASHED, pytest.param(SMALL, marks=pytest.mark.slow)])
def test_a_model_with_hashed_ids_predicts_what_the_servers_predict(
    ranks: ForkServer, tmp_path: Path, rows: int
) -> None:
    """Also for untrained ids: they have the initial values that the servers would give them."""
    (wanted,), _ = jobs.run(ranks, exports, tmp_path, {"rows": rows}, 1, 2)
    exe = paddle.static.Executor()
    program, feeds, targets = fluid.io.load_inference_model(str(tmp_path / "model"), exe)
    assert feeds == ["ids"]
    assert global_scope().get("table@IDS").tolist() == sorted(set(TRAINED.flatten().tolist()))
    for name, ids in {"trained": TRAINED, "unseen": UNSEEN}.items():
        (fetched,) = exe.run(program, feed={"ids": ids}, fetch_list=targets)
        np.testing.assert_array_equal(fetched, wanted[name], err_msg=name)
