"""Jobs with parameter servers that save, resume with other servers, and infer."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import argosy as paddle
from argosy import fluid
from argosy.distributed import fleet
from argosy.distributed.fleet.utils.ps_util import DistributedInfer
from argosy.engine.errors import CorruptFileError, DataError, ScopeError
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.runtime import atomic_files, server_files
from argosy.static.io import VARS_FILE
from tests import fleet_jobs as jobs
from tests.ranks import ForkServer

STEPS = 4
SAVED, MODEL = "saved", "model"
UNSEEN = 99
"""A batch that is not trained on."""


def minimized() -> tuple[jobs.Net, Any]:
    """The model, which Adam trains synchronously, and its program as it was before."""
    net = jobs.build(True)
    plain = default_main_program().clone(for_test=True)
    strategy = jobs.strategy_of({"a_sync": False})
    fleet.distributed_optimizer(jobs.OPTIMIZERS["adam"](), strategy).minimize(net.loss)
    return net, plain


def train(exe: Any, net: jobs.Net, steps: range) -> None:
    for step in steps:
        feed = jobs.batch(step, fleet.worker_index(), fleet.worker_num())
        exe.run(feed=jobs.fed(net, feed), fetch_list=[net.loss])


def predictions(exe: Any, plain: Any, net: jobs.Net) -> np.ndarray[Any, Any]:
    """With the tables on the servers, of which a program that was cloned before `minimize` knows nothing."""
    feed = jobs.fed(net, jobs.batch(UNSEEN))
    with pytest.raises(ScopeError, match="is a table on the servers.*clone .* after minimize, or take Distr"):
        exe.run(plain, feed=feed, fetch_list=[net.out.name])
    program = DistributedInfer(plain).get_dist_infer_program()
    return exe.run(program, feed=feed, fetch_list=[net.out.name])[0]


def trains() -> None:
    """Steps 0 to 3, saved, and 4 to 7; or, from what was saved, 4 to 7."""
    given = jobs.case()
    rank, folder, saved = jobs.take_role(given["workers"]), given["folder"], given.get("saved")
    fleet.init()
    net, plain = minimized()
    if fleet.is_server():
        fleet.init_server(saved)
        fleet.run_server()
        return
    exe = paddle.static.Executor()
    exe.run(default_startup_program())
    fleet.init_worker()
    if saved is None:
        train(exe, net, range(given.get("steps", STEPS)))
    fleet.barrier_worker()
    predicted = predictions(exe, plain, net)
    if saved is None and fleet.is_first_worker():
        fleet.save_persistables(exe, f"{folder}/{SAVED}")
        fleet.save_inference_model(exe, f"{folder}/{MODEL}", ["x", "a", "b"], [net.out])
    fleet.barrier_worker()
    train(exe, net, range(STEPS, 2 * STEPS))
    fleet.barrier_worker()
    values = jobs.parameters(default_main_program())
    np.savez(f"{folder}/{rank}.npz", predicted=predicted, table=jobs.table_rows(), **values)
    fleet.stop_worker()


def trains_by_itself() -> None:
    """geo, without a synchronization while it trains; each of the two workers sends half of its changes."""
    given = jobs.case()
    rank, folder = jobs.take_role(given["workers"]), given["folder"]
    fleet.init()
    net = jobs.build(True)
    strategy = jobs.strategy_of({"a_sync": True, "configs": {"k_steps": 1000}})
    fleet.distributed_optimizer(jobs.OPTIMIZERS["sgd"](), strategy).minimize(net.loss)
    if fleet.is_server():
        fleet.init_server()
        assert "listen_and_serv" in str(fleet.main_program), "the server's own program"
        fleet.run_server()
        return
    exe = paddle.static.Executor()
    exe.run(default_startup_program())
    fleet.init_worker()
    first = jobs.parameters(default_main_program())
    train(exe, net, range(STEPS))
    fleet.barrier_worker()
    if fleet.is_first_worker():
        fleet.save_persistables(exe, f"{folder}/{SAVED}")
        actual, _ = atomic_files.read_tensors(Path(folder, SAVED, VARS_FILE))
        for name, value in jobs.parameters(default_main_program()).items():
            learnt, saved = value - first[name], actual[name].numpy() - first[name]
            assert np.abs(saved).max() > 0.3 * np.abs(learnt).max(), f"{name} is as it was at first"
    fleet.barrier_worker()
    fleet.stop_worker()
    np.savez(f"{folder}/{rank}.npz")


def infers() -> None:
    """A job that only infers."""
    given = jobs.case()
    rank = jobs.take_role(given["workers"])
    net = jobs.build(True)
    exe = paddle.static.Executor()
    infer = DistributedInfer(default_main_program(), default_startup_program())
    infer.init_distributed_infer_env(exe, net.loss, dirname=given["saved"])
    if fleet.is_server():
        return
    program = infer.get_dist_infer_program()
    feed = jobs.fed(net, jobs.batch(UNSEEN))
    (predicted,) = exe.run(program, feed=feed, fetch_list=[net.out.name])
    fleet.stop_worker()
    np.savez(f"{given['folder']}/{rank}.npz", predicted=predicted)


def loaded(folder: Path) -> np.ndarray[Any, Any]:
    """What the model for one process predicts."""
    exe = paddle.static.Executor()
    program, feeds, targets = fluid.io.load_inference_model(str(folder), exe)
    given = jobs.batch(UNSEEN)
    return exe.run(program, feed={name: given[name] for name in feeds}, fetch_list=targets)[0]


def test_a_saved_job_resumes_with_other_servers_and_infers(ranks: ForkServer, tmp_path: Path) -> None:
    saved = str(tmp_path / SAVED)
    first, _ = jobs.run(ranks, trains, tmp_path, {}, 2, 2)
    np.testing.assert_allclose(loaded(tmp_path / MODEL), first[0]["predicted"], rtol=1e-6)

    second, said = jobs.run(ranks, trains, tmp_path, {"saved": saved}, 1, 3)
    assert "table table starts with" in said[-1]
    for name, value in first[0].items():
        np.testing.assert_allclose(second[0][name], value, rtol=2e-5, atol=1e-6, err_msg=name)

    third, _ = jobs.run(ranks, infers, tmp_path, {"saved": saved}, 1, 2)
    np.testing.assert_array_equal(third[0]["predicted"], first[0]["predicted"])


@pytest.mark.slow
def test_a_save_by_fewer_servers_replaces_that_of_more(ranks: ForkServer, tmp_path: Path) -> None:
    saved, folder = str(tmp_path / SAVED), tmp_path / SAVED / "table_txt"
    jobs.run(ranks, trains, tmp_path, {}, 2, 2)
    stale = {path.name: path.read_bytes() for path in folder.iterdir()}
    newer, _ = jobs.run(ranks, trains, tmp_path, {"steps": 1}, 1, 1)
    assert len(list(folder.iterdir())) == 2, "one file of rows, and what is in them"
    for name, content in stale.items():
        (folder / name).write_bytes(content)  # somebody brings old files back
    later, _ = jobs.run(ranks, trains, tmp_path, {"saved": saved}, 1, 2)
    np.testing.assert_array_equal(later[0]["predicted"], newer[0]["predicted"])

    def files() -> list[Path]:
        named = atomic_files.read_more(tmp_path / SAVED / VARS_FILE)
        return server_files.files_of(tmp_path / SAVED, "table", named, server=0, servers=1)

    (path,) = files()
    assert path.name not in stale
    path.write_bytes(path.read_bytes().replace(b"1", b"2", 1))
    with pytest.raises(CorruptFileError, match=f"{path} does not match its checksum"):
        files()
    path.unlink()
    with pytest.raises(DataError, match=f"{path}, which belongs to the save, does not exist"):
        files()


def test_under_geo_what_is_saved_has_what_all_workers_have_learnt(ranks: ForkServer, tmp_path: Path) -> None:
    jobs.run(ranks, trains_by_itself, tmp_path, {}, 2, 1)
    (path,) = (tmp_path / SAVED / "table_txt").glob("table.block0-*.txt")
    rows = path.read_text().splitlines()
    assert len(rows) > 10
