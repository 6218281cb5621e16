"""Wide and deep on parameter servers, or in one process.

    fleetrun --server_num=1 --worker_num=2 train.py --mode async
    fleetrun --server_num=2 --worker_num=4 train.py --mode sync --dataset memory --data /data/criteo
    python train.py                             one process, no servers: the table is a parameter like any other

After each epoch all workers together test the model: loss and AUC on the test files.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import data
import net
import numpy as np
import reader

import argosy as paddle
from argosy.distributed import fleet

Sample = tuple[Any, ...]


def strategy_of(mode: str, k_steps: int) -> fleet.DistributedStrategy:
    """What fleet calls the mode."""
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = mode != "sync"
    if mode == "geo":
        strategy.a_sync_configs = {"k_steps": k_steps}
    if mode == "half_async":
        strategy.a_sync_configs = {"half_async": True}
    return strategy


class Model:
    """The program, its program for testing, and the variables that are looked at."""

    def __init__(self, args: argparse.Namespace) -> None:
        numbers, categories, label = net.inputs()
        self.inputs = [numbers, *categories, label]
        probability = net.wide_and_deep(numbers, categories, rows=args.table_rows)
        self.loss = net.loss(probability, label)
        _, self.counts = net.auc(probability, label)
        self.program = paddle.static.default_main_program()
        self.test_program = self.program.clone(for_test=True)
        optimizer = getattr(paddle.optimizer, args.optimizer)(learning_rate=args.lr)
        strategy = strategy_of(args.mode, args.k_steps)
        fleet.distributed_optimizer(optimizer, strategy).minimize(self.loss)

    def auc(self) -> float:
        """The AUC of all workers' examples since the last call."""
        value = fleet.metrics.auc(*self.counts)
        for variable in self.counts:
            scope_variable = paddle.static.global_scope().find_var(variable.name)
            assert scope_variable is not None, "fleet.metrics.auc has read it"
            tensor = scope_variable.get_tensor()
            tensor.set(np.zeros_like(np.array(tensor)), paddle.CPUPlace())
        return value


def samples(files: list[str], rows: int) -> Callable[[], Iterator[Sample]]:
    """The samples of these files, in the order of the program's inputs."""

    def read() -> Iterator[Sample]:
        for path in files:
            with open(path) as lines:
                for line in lines:
                    numbers, ids, label = reader.parse(line, rows)
                    yield (numbers, *([i] for i in ids), [label])

    return read


def loader(model: Model, files: list[str], args: argparse.Namespace) -> Any:
    """Batches of these files, read in the background."""
    data_loader = paddle.io.DataLoader.from_generator(feed_list=model.inputs, capacity=64, iterable=True)
    data_loader.set_sample_generator(samples(files, args.table_rows), args.batch_size, drop_last=False)
    return data_loader


def dataset(model: Model, files: list[str], args: argparse.Namespace) -> Any:
    """A QueueDataset or an InMemoryDataset whose files go through reader.py."""
    words = [sys.executable, str(Path(__file__).with_name("reader.py")), "--rows", str(args.table_rows)]
    kinds = {"queue": paddle.distributed.QueueDataset, "memory": paddle.distributed.InMemoryDataset}
    slot_dataset: Any = kinds[args.dataset]()
    slot_dataset.init(
        batch_size=args.batch_size,
        thread_num=args.threads,
        use_var=model.inputs,
        pipe_command=shlex.join(words),
    )
    slot_dataset.set_filelist(files)
    if args.dataset == "memory":
        slot_dataset.load_into_memory()
    return slot_dataset


def trainer(exe: Any, model: Model, files: list[str], args: argparse.Namespace) -> Callable[[], None]:
    """A function that trains one epoch on these files."""
    if args.dataset == "loader":
        batches = loader(model, files, args)

        def train() -> None:
            for batch in batches():
                exe.run(model.program, feed=batch)

        return train
    source = dataset(model, files, args)

    def train_from_dataset() -> None:
        if args.dataset == "memory":
            source.global_shuffle(fleet)
        exe.train_from_dataset(
            model.program, source, fetch_list=[model.loss], fetch_info=["loss"], print_period=args.print_every
        )

    return train_from_dataset


def test(
    exe: Any, model: Model, program: Any, files: list[str], args: argparse.Namespace
) -> tuple[float, float]:
    """(loss, AUC) over the test files of all workers."""
    total = np.zeros(2)
    for batch in loader(model, files, args)():
        loss, label = exe.run(program, feed=batch, fetch_list=[model.loss.name, "label"])
        total += (loss.item() * len(label), len(label))
    losses, examples = fleet.metrics.sum(total)
    return losses / examples, model.auc()


def program_for_testing(model: Model) -> Any:
    """Its lookups are answered by the servers, if there are some."""
    if not fleet.server_num():
        return model.test_program
    from argosy.distributed.fleet.utils.ps_util import DistributedInfer

    return DistributedInfer(main_program=model.test_program).get_dist_infer_program()


def work(model: Model, args: argparse.Namespace) -> None:
    """What a worker does: train, test, save."""
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(paddle.static.default_startup_program())
    fleet.init_worker()
    test_program = program_for_testing(model)
    folder = Path(args.data) if args.data else data.sample()
    shares = {name: fleet.util.get_file_shard(data.files(folder, name)) for name in ("train", "test")}
    train = trainer(exe, model, shares["train"], args)
    for epoch in range(args.epochs):
        began = time.perf_counter()
        train()
        seconds, training = time.perf_counter() - began, model.auc()
        loss, auc = test(exe, model, test_program, shares["test"], args)
        if fleet.is_first_worker():
            print(
                f"[Epoch {epoch}] {seconds:.1f} s, training AUC: {training:.4f}, test loss: {loss:.4f}, "
                f"test AUC: {auc:.4f}",
                flush=True,
            )
    if args.save and fleet.is_first_worker():
        fleet.save_persistables(exe, args.save)
    fleet.stop_worker()


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--mode", choices=("sync", "async", "half_async", "geo"), default="async")
    p.add_argument("--k_steps", type=int, default=100, help="geo: steps between two pushes")
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--batch_size", type=int, default=64, help="examples per step and worker")
    p.add_argument("--optimizer", choices=("SGD", "Adagrad", "Adam"), default="SGD")
    p.add_argument("--lr", type=float, default=0.5, help="learning rate")
    p.add_argument(
        "--dataset", choices=("queue", "memory", "loader"), default="queue", help="how files are read"
    )
    p.add_argument("--threads", type=int, default=1, help="of a worker: readers, and trainers of its model")
    p.add_argument("--data", default="", help="folder with train/part-* and test/part-* in Criteo's format")
    p.add_argument("--table_rows", type=int, default=net.TABLE_ROWS)
    p.add_argument("--print_every", type=int, default=100, help="print the loss of every n-th batch")
    p.add_argument("--save", default="", help="write the model into this folder when done")
    return p


def main() -> None:
    args = parser().parse_args()
    paddle.enable_static()
    fleet.init()
    model = Model(args)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
    else:
        work(model, args)


if __name__ == "__main__":
    main()
