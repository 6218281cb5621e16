"""Datasets: settings, loading, shuffles, and what is refused."""

# SPDX-License-Identifier: Apache-2.0
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import argosy
from argosy import distributed, fluid, static
from argosy.distributed import fleet
from argosy.engine.errors import ConfigError, DataError, UnknownNameError
from tests.ranks import ForkServer

Make = Callable[..., Any]


def write(folder: Path, files: int = 3, lines: int = 10, begin: int = 0) -> list[str]:
    """Records of x = [i, i + 0.5] and y = i."""
    values = []
    for f in range(files):
        path = folder / f"part-{f}"
        first = begin + f * lines
        path.write_text("".join(f"2 {i} {i + 0.5} 1 {i}\n" for i in range(first, first + lines)))
        values.append(str(path))
    return values


def variables() -> list[Any]:
    return [static.data("x", [None, 2]), static.data("y", [None, 1], "int64")]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(kind: str, **settings: Any) -> Any:
        dataset = getattr(distributed, kind)()
        dataset.init(**{"use_var": variables(), "batch_size": 4} | settings)
        dataset.set_filelist(write(tmp_path))
        return dataset

    return made


def labels(dataset: Any) -> list[int]:
    actual = []
    for batch in dataset.batches():
        assert batch["x"][:, 0].tolist() == batch["y"][:, 0].tolist()
        assert (batch["x"].dtype, batch["y"].dtype) == (np.float32, np.int64)
        actual += batch["y"][:, 0].tolist()
    return actual


# --- both -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["InMemoryDataset", "QueueDataset"])
def test_batches_go_over_the_borders_of_files_and_the_last_is_what_is_left(kind: str, make: Make) -> None:
    dataset = make(kind)
    if kind == "InMemoryDataset":
        dataset.load_into_memory()
    assert [len(batch["y"]) for batch in dataset.batches()] == [4] * 7 + [2]
    assert labels(dataset) == labels(dataset) == list(range(30))


def test_settings_can_be_changed(make: Make) -> None:
    dataset = make("QueueDataset")
    dataset.update_settings(batch_size=30, pipe_command="head -n 1")
    assert [batch["y"].ravel().tolist() for batch in dataset.batches()] == [[0, 10, 20]]


def test_there_are_no_more_readers_than_files(make: Make) -> None:
    dataset = make("QueueDataset", thread_num=12)
    assert dataset.thread_num == 3
    assert sorted(labels(dataset)) == list(range(30))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"thread_num": -1}, "thread_num is -1"),
        ({"use_var": []}, "give the list of variables"),
        ({"pipe_command": ""}, "give a command"),
        ({"input_type": 1}, "input_type is 1; use 0"),
        ({"fs_name": "hdfs://x"}, "HDFS is not supported"),
        ({"fs_ugi": "me,secret"}, "HDFS is not supported"),
        ({"download_cmd": "hadoop fs -cat"}, "put the decompression in front of the pipe_command"),
        ({"data_feed_type": "PaddleBoxDataFeed"}, "use MultiSlotDataFeed or MultiSlotInMemoryDataFeed"),
        ({"queue_num": 0}, "queue_num is 0"),
    ],
)
def test_an_invalid_setting_is_rejected(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        distributed.QueueDataset().init(**{"use_var": variables()} | setting)


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="no setting 'batchsize'.*batch_size"):
        distributed.QueueDataset().init(use_var=variables(), batchsize=3)


@pytest.mark.parametrize("kind", ["InMemoryDataset", "QueueDataset"])
def test_a_worker_may_have_no_files(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    dataset = getattr(distributed, kind)()
    dataset.init(use_var=variables(), batch_size=4, thread_num=2)
    dataset.set_filelist([])
    assert caplog.text.count("this worker's file list is empty") == 1
    if kind == "InMemoryDataset":
        dataset.load_into_memory()
        dataset.global_shuffle()
        dataset.slots_shuffle(["x"])
        dataset.preload_into_memory()
        dataset.wait_preload_done()
        assert dataset.get_memory_data_size() == 0
    assert (list(dataset.batches()), dataset.get_filelist(), dataset.thread_num) == ([], [], 1)
    static.Executor().train_from_dataset(dataset=dataset)


def test_what_comes_too_early_is_said() -> None:
    dataset = distributed.InMemoryDataset()
    with pytest.raises(ConfigError, match="update_settings before init"):
        dataset.update_settings(batch_size=2)
    dataset.init(use_var=variables())
    with pytest.raises(ConfigError, match="not a list of file names"):
        dataset.set_filelist("part-0")
    with pytest.raises(ConfigError, match="no files; call set_filelist"):
        dataset.load_into_memory()
    for call in (dataset.local_shuffle, dataset.batches, lambda: dataset.slots_shuffle(["x"])):
        with pytest.raises(ConfigError, match="call load_into_memory\\(\\) first"):
            call()
    with pytest.raises(ConfigError, match="wait_preload_done without preload_into_memory"):
        dataset.wait_preload_done()


def test_a_queue_cannot_be_shuffled(make: Make) -> None:
    for shuffle in (make("QueueDataset").local_shuffle, make("QueueDataset").global_shuffle):
        with pytest.raises(ConfigError, match="use InMemoryDataset"):
            shuffle()


# --- in memory --------------------------------------------------------------------------------------------


def test_preloading_is_loading_in_the_background(make: Make) -> None:
    dataset = make("InMemoryDataset", pipe_command="sleep 0.3; cat")
    dataset.preload_into_memory(3)
    assert dataset.get_memory_data_size() == 0
    with pytest.raises(ConfigError, match="already running"):
        dataset.preload_into_memory()
    dataset.wait_preload_done()
    assert sorted(labels(dataset)) == list(range(30))


def test_an_error_of_preloading_comes_when_it_is_waited_for(make: Make) -> None:
    dataset = make("InMemoryDataset", pipe_command="exit 4")
    dataset.preload_into_memory()
    with pytest.raises(DataError, match="exit code 4"):
        dataset.wait_preload_done()


def test_releasing_the_memory_ends_a_preload(make: Make) -> None:
    dataset = make("InMemoryDataset", pipe_command="sleep 1000")
    dataset.preload_into_memory()
    dataset.release_memory()
    assert not [t for t in threading.enumerate() if t.name.startswith("argosy-")]
    assert dataset.get_memory_data_size() == 0


def test_a_local_shuffle_is_another_order_of_the_same_records_by_the_seed(make: Make) -> None:
    dataset = make("InMemoryDataset")
    orders = []
    for seed in (1, 1, 2):
        dataset.load_into_memory()
        argosy.seed(seed)
        dataset.local_shuffle()
        orders.append(labels(dataset))
    assert orders[0] == orders[1] != orders[2]
    assert all(sorted(order) == list(range(30)) for order in orders)
    assert list(range(30)) not in orders
    dataset.global_shuffle()
    assert sorted(labels(dataset)) == list(range(30))
    assert dataset.get_memory_data_size() == dataset.get_shuffle_data_size() == 30


def test_slots_are_shuffled_by_themselves(make: Make) -> None:
    dataset = make("InMemoryDataset", batch_size=30)
    dataset.load_into_memory()
    dataset.slots_shuffle(["y"])
    (batch,) = dataset.batches()
    assert batch["x"].tolist() == [[i, i + 0.5] for i in range(30)]
    assert batch["y"].ravel().tolist() != list(range(30))
    assert sorted(batch["y"].ravel().tolist()) == list(range(30))
    with pytest.raises(ConfigError, match="the slots are x, y"):
        dataset.slots_shuffle(["z"])


def shuffle_among_workers() -> None:
    """Worker r has the records r * 1000 … r * 1000 + 999, of which most go to others."""
    fleet.init(is_collective=True)
    rank = fleet.worker_index()
    dataset = distributed.InMemoryDataset()
    dataset.init(use_var=variables(), batch_size=64)
    with tempfile.TemporaryDirectory() as folder:
        dataset.set_filelist(write(Path(folder), files=2, lines=500, begin=rank * 1000))
        dataset.load_into_memory()
    torch.manual_seed(rank)
    dataset.global_shuffle(fleet, 12)
    mine = labels(dataset)
    unmoved = sum(label // 1000 == rank for label in mine)
    assert 200 < unmoved < 470, unmoved  # a third of 1000
    assert mine != sorted(mine)
    gathered = fleet.util.all_gather(mine)
    assert sorted(label for part in gathered for label in part) == list(range(3000))
    assert dataset.get_memory_data_size() == len(mine) != 3000
    assert dataset.get_memory_data_size(fleet) == dataset.get_shuffle_data_size(fleet.fleet) == 3000


def test_a_global_shuffle_sends_records_to_all_workers(ranks: ForkServer) -> None:
    ranks.check(3, shuffle_among_workers)


# --- Paddle's scripts -----------------------------------------------------------------------------------------

READER = """
import paddle
import paddle.distributed.fleet as fleet

class Reader(fleet.MultiSlotDataGenerator):
    def generate_sample(self, line):
        def samples():
            yield zip(["x", "y"], [[float(line)], [hash("category" + line) % 1000]])
        return samples

Reader().run_from_stdin()
"""
SCRIPT = """
import paddle

paddle.enable_static()
x = paddle.static.data("x", [None, 1])
y = paddle.static.data("y", [None, 1], "int64", lod_level=1)
dataset = paddle.distributed.QueueDataset()
dataset.init(use_var=[x, y], pipe_command="python reader.py", batch_size=2, thread_num=2)
dataset.set_filelist(["part-0", "part-1"])
total = paddle.sum(x)
exe = paddle.static.Executor(paddle.CPUPlace())
exe.run(paddle.static.default_startup_program())
exe.train_from_dataset(dataset=dataset, thread=1, fetch_list=[total, y], fetch_info=["sum", "y"], print_period=1)
"""


def test_a_script_that_says_paddle_has_readers_that_say_paddle(tmp_path: Path, ranks: ForkServer) -> None:
    (tmp_path / "reader.py").write_text(READER)
    (tmp_path / "train.py").write_text(SCRIPT)
    for name in ("part-0", "part-1"):
        (tmp_path / name).write_text("1\n2\n")
    completed = ranks.python("-m", "argosy.paddle", "train.py", cwd=tmp_path)
    assert (completed.returncode, completed.stderr) == (0, "")
    values = [line.partition("sum: ")[2] for line in completed.stdout.splitlines()]
    assert len(values) == 2
    assert values[0] == values[1]  # the same hash in both processes


# --- 1.x ----------------------------------------------------------------------------------------------------


def test_the_factory_makes_datasets_with_setters(tmp_path: Path) -> None:
    dataset: Any = fluid.DatasetFactory().create_dataset("InMemoryDataset")
    dataset.set_batch_size(7)
    dataset.set_use_var(variables())
    dataset.set_pipe_command("head -n 2")
    dataset.set_thread(2)
    dataset.set_filelist(write(tmp_path))
    dataset.load_into_memory()
    assert sorted(labels(dataset)) == [0, 1, 10, 11, 20, 21]
    assert isinstance(dataset, distributed.InMemoryDataset)
    assert isinstance(fluid.DatasetFactory().create_dataset(), distributed.QueueDataset)
    with pytest.raises(ConfigError, match="use InMemoryDataset or QueueDataset"):
        fluid.DatasetFactory().create_dataset("BoxPSDataset")
    with pytest.raises(ConfigError, match="HDFS is not supported"):
        dataset.set_hdfs_config("hdfs://x", "me")
