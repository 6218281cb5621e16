"""fleet.Checkpoint in a job with parameter servers: workers and servers resume together."""

# SPDX-License-Identifier: Apache-2.0
import shutil
from pathlib import Path

import numpy as np
import pytest

import argosy as paddle
from argosy.distributed import fleet
from argosy.engine.ir.program import default_main_program, default_startup_program
from tests import fleet_jobs as jobs
from tests.ranks import ForkServer

STEPS, EVERY = 9, 2
MODES = {
    "sync": {"a_sync": False},
    "async": {"a_sync": True},
    "half_async": {"a_sync": True, "configs": {"half_async": True}},
    "geo": {"a_sync": True, "configs": {"k_steps": 3}},
}


def trains() -> None:
    """All steps, or up to the one at which the job ends early."""
    given = jobs.case()
    rank, folder = jobs.take_role(given["workers"]), given["folder"]
    fleet.init()
    net = jobs.build(True)
    strategy = jobs.strategy_of(MODES[given["mode"]])
    fleet.distributed_optimizer(jobs.OPTIMIZERS["adam"](), strategy).minimize(net.loss)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        return
    exe = paddle.static.Executor()
    exe.run(default_startup_program())
    fleet.init_worker()
    checkpoint = fleet.Checkpoint(f"{folder}/checkpoints", every=EVERY, keep=given.get("keep", 2))
    seen = []
    for _, step, _ in checkpoint.batches(range(STEPS), 1, exe):
        if step == given.get("ends_at"):
            break
        feed = jobs.batch(step, fleet.worker_index(), fleet.worker_num())
        exe.run(feed=jobs.fed(net, feed), fetch_list=[net.loss])
        seen.append(step)
    fleet.barrier_worker()
    values = jobs.parameters(default_main_program())
    np.savez(f"{folder}/{rank}.npz", seen=seen, table=jobs.table_rows(), **values)
    fleet.stop_worker()


CASES = [
    ("sync", 2),
    *(pytest.param(mode, 1, marks=pytest.mark.slow) for mode in ("geo", "async", "half_async")),
]


@pytest.mark.parametrize(("mode", "workers"), CASES)
def test_a_job_resumes_with_another_number_of_servers_as_if_it_had_not_ended(
    ranks: ForkServer, tmp_path: Path, mode: str, workers: int
) -> None:
    whole, _ = jobs.run(ranks, trains, tmp_path, {"mode": mode, "keep": STEPS}, workers, 2)
    assert whole[0]["seen"].tolist() == list(range(STEPS))
    steps = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert steps == [f"step-{number:08}" for number in (2, 4, 6, 8, 9)]
    assert (tmp_path / "checkpoints" / steps[-1] / "table_txt").is_dir()

    for name in steps[2:]:  # what a job leaves that ends at step 5
        shutil.rmtree(tmp_path / "checkpoints" / name)
    resumed, _ = jobs.run(ranks, trains, tmp_path, {"mode": mode}, workers, 3)
    for one, other in zip(resumed, whole, strict=True):
        assert one["seen"].tolist() == list(range(4, STEPS))
        for name in other.keys() - {"seen"}:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def test_a_checkpoint_whose_servers_part_is_damaged_is_skipped(ranks: ForkServer, tmp_path: Path) -> None:
    jobs.run(ranks, trains, tmp_path, {"mode": "sync", "ends_at": 7}, 1, 1)
    older, newest = sorted((tmp_path / "checkpoints").iterdir())
    assert (older.name, newest.name) == ("step-00000004", "step-00000006"), "the last two"
    (rows,) = (newest / "table_txt").glob("*.txt")
    rows.write_bytes(rows.read_bytes().replace(b"1", b"2", 1))
    resumed, said = jobs.run(ranks, trains, tmp_path, {"mode": "sync"}, 1, 1)
    assert resumed[0]["seen"].tolist() == list(range(4, STEPS))
    assert any(
        f"checkpoint {newest} is skipped" in one and "does not match its checksum" in one for one in said
    )
