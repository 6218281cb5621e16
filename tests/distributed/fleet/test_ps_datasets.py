"""Workers of a job with parameter servers that train from datasets: prefetched rows, threads, a global shuffle."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import argosy as paddle
from argosy.distributed import InMemoryDataset, QueueDataset, fleet
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.ir.roles import TrainerRole
from tests import fleet_jobs as jobs
from tests.ranks import ForkServer

FILES = 4


def write(folder: Path) -> list[str]:
    """Files of records of x, a, b, y; x begins with the number of the record."""
    values = []
    for number in range(FILES):
        feed = jobs.batch(number)
        columns = [feed[name].tolist() for name in ("x", "a", "b", "y")]
        path = folder / f"part-{number}"
        path.write_text("".join(line(*record) for record in zip(*columns, strict=True)))
        values.append(str(path))
    return values


def line(*slots: list[Any]) -> str:
    return " ".join(f"{len(slot)} {' '.join(map(str, slot))}" for slot in slots) + "\n"


def records(dataset: Any) -> np.ndarray[Any, Any]:
    """x of all records."""
    return np.concatenate([batch["x"] for batch in dataset.batches()])


def dataset_of(kind: Any, net: jobs.Net, files: list[str], threads: int = 1) -> Any:
    dataset = kind()
    dataset.init(batch_size=4, thread_num=threads, use_var=net.inputs, pipe_command="cat")
    dataset.set_filelist(fleet.util.get_file_shard(files))
    return dataset


def trains_from_files() -> None:
    """Two passes over this worker's files, by train_from_dataset or by a loop that feeds; then a shuffle."""
    given = jobs.case()
    rank = jobs.take_role(given["workers"])
    fleet.init()
    net = jobs.build(True)
    fleet.distributed_optimizer(jobs.OPTIMIZERS["adam"](), jobs.strategy_of(given)).minimize(net.loss)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        return
    exe = paddle.static.Executor()
    exe.run(default_startup_program())
    fleet.init_worker()
    threads = given.get("threads", 1)
    queue = dataset_of(QueueDataset, net, given["files"], threads)
    main = default_main_program()
    assert isinstance(main.role, TrainerRole)
    assert [lookup.table for lookup in main.role.fed_lookups] == ["table"]
    before = jobs.loss_of(exe, net, FILES)
    fleet.barrier_worker()
    if not given["a_sync"]:
        with pytest.raises(ConfigError, match="2 threads, but the program waits for other workers"):
            exe.train_from_dataset(main, queue, thread=2)
    for _ in range(given["passes"]):
        if given["feeds"]:
            for values in queue.batches():
                exe.run(main, feed=values)
        else:
            exe.train_from_dataset(main, queue, thread=threads)
    fleet.barrier_worker()
    values = jobs.parameters(main) | {"table": jobs.table_rows()}
    values |= {"before": before, "after": jobs.loss_of(exe, net, FILES)}

    memory = dataset_of(InMemoryDataset, net, given["files"])
    memory.load_into_memory()
    loaded = records(memory)
    paddle.seed(rank)
    memory.global_shuffle(fleet)
    shuffled = records(memory)
    values |= {"own": loaded, "shuffled": shuffled, "count": np.array(memory.get_memory_data_size(fleet))}
    fleet.stop_worker()
    np.savez(f"{given['folder']}/{rank}.npz", **values)


def assert_shuffled(actual: list[jobs.Arrays]) -> None:
    """Every record is with one worker, and both have records of both."""
    loaded = np.concatenate([one["own"] for one in actual])
    shuffled = np.concatenate([one["shuffled"] for one in actual])
    assert sorted(map(tuple, loaded)) == sorted(map(tuple, shuffled))
    assert loaded.tolist() != shuffled.tolist()
    before = [set(map(tuple, one["own"])) for one in actual]
    for one in actual:
        assert int(one["count"]) == FILES * jobs.BATCH
        assert all(part & set(map(tuple, one["shuffled"])) for part in before)


def test_rows_that_come_ahead_of_time_change_nothing_under_sync(ranks: ForkServer, tmp_path: Path) -> None:
    given = {"a_sync": False, "files": write(tmp_path), "passes": 2}
    ahead, _ = jobs.run(ranks, trains_from_files, tmp_path, given | {"feeds": False}, 2, 2)
    fed, _ = jobs.run(ranks, trains_from_files, tmp_path, given | {"feeds": True}, 2, 1)
    for name in ("table", "fc_0.w_0", "fc_1.w_0"):
        np.testing.assert_array_equal(ahead[0][name], fed[0][name], err_msg=name)
        np.testing.assert_array_equal(ahead[0][name], ahead[1][name], err_msg=name)
    assert_shuffled(ahead)


def test_two_threads_of_two_workers_learn_from_one_table(ranks: ForkServer, tmp_path: Path) -> None:
    given = {"a_sync": True, "files": write(tmp_path), "passes": 6, "feeds": False, "threads": 2}
    fetched, _ = jobs.run(ranks, trains_from_files, tmp_path, given, 2, 1, FULL_EXIT="1")
    for one in fetched:
        assert one["after"] < 0.7 * one["before"]
