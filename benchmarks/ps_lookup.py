"""Sparse lookups alone: rows of a batch from a table on a server, against a local EmbeddingBag.

python benchmarks/ps_lookup.py                  512 examples of 26 ids from a Zipf law, 10 floats, 1,000,001 rows

    lookup          ids de-duplicated, one request, the server's table, rows spread over the batch again
    lookup + push   the same, then the gradients of the rows, added up by id, to the server
    EmbeddingBag    torch, in the trainer's own memory (mode "sum" over bags of one id); forward only
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import harness
import numpy as np
import torch
from torch import Tensor

from argosy.engine.ps.rpc.client import Client
from argosy.engine.ps.rpc.server import Handler, Request, RpcServer
from argosy.engine.ps.rpc.sockets import RpcSettings
from argosy.engine.ps.table.table import SparseTable
from argosy.engine.ps.table.table_spec import RowInit, TableSpec

EXAMPLES, SLOTS, WIDTH, ROWS = 512, 26, 10, 1_000_001
BATCHES = 100
LOOKUP, BOTH, LOCAL = "lookup", "lookup + push", "local EmbeddingBag"


def serve(connection: Connection) -> None:
    """A server with one full table; exits on command."""
    torch.set_num_threads(1)
    table = SparseTable(TableSpec("table", WIDTH, RowInit("uniform", -0.1, 0.1)))
    table.pull(torch.arange(ROWS))

    def pull(request: Request) -> None:
        request.reply({}, [table.pull(request.tensors[0])])

    def push(request: Request) -> None:
        table.push(request.tensors[0], request.tensors[1], 0.01)
        request.reply()

    handlers = {"pull": Handler("prefetch", pull, repeatable=True), "push": Handler("send", push)}
    server = RpcServer("127.0.0.1:0", RpcSettings(), handlers, lambda _: None)
    thread = threading.Thread(target=server.serve)
    thread.start()
    connection.send(server.endpoint)
    connection.recv()
    server.stop()
    thread.join()


def batches() -> Iterator[Tensor]:
    """Ids of batches, one after the other, without end."""
    rng = np.random.default_rng(0)
    drawn = rng.zipf(1.3, (BATCHES, EXAMPLES * SLOTS)) % ROWS
    return itertools.cycle(torch.from_numpy(drawn))


def look_up(client: Client, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(rows of the batch, its different ids, where each id is among those)."""
    unique, inverse = torch.unique(ids, return_inverse=True)
    (rows,) = client.call(0, "pull", {}, [unique]).tensors
    return rows.index_select(0, inverse), unique, inverse


def contenders(endpoint: str) -> tuple[Client, dict[str, Callable[[], object]]]:
    client = Client([endpoint], "trainer 0", 0, RpcSettings())
    bag = torch.nn.EmbeddingBag(ROWS, WIDTH, mode="sum")
    offsets, gradient = torch.arange(EXAMPLES * SLOTS), torch.ones(EXAMPLES * SLOTS, WIDTH)
    endless = batches()

    def lookup_and_push() -> None:
        _, unique, inverse = look_up(client, next(endless))
        total = torch.zeros(len(unique), WIDTH).index_add_(0, inverse, gradient)
        client.call(0, "push", {}, [unique, total])

    def local() -> None:
        with torch.no_grad():
            bag(next(endless), offsets)

    return client, {LOOKUP: lambda: look_up(client, next(endless)), BOTH: lookup_and_push, LOCAL: local}


def measure(rounds: int, steps: int) -> dict[str, harness.Measured]:
    """The contenders take turns in this process; the server is another one."""
    process, ours = harness.start(serve)
    client, functions = contenders(ours.recv())
    results = {name: harness.Measured() for name in functions}
    for _ in harness.in_rounds(rounds):
        for name, step in functions.items():
            step()
            for _ in range(steps):
                began = time.perf_counter()
                step()
                results[name].seconds.append(time.perf_counter() - began)
    client.close()
    ours.send(None)
    process.join(20)
    return results


def summary(results: dict[str, harness.Measured]) -> str:
    """Rows/s of each, and its share of the local one's."""
    asked = EXAMPLES * SLOTS
    unique = np.mean([len(torch.unique(ids)) for ids in itertools.islice(batches(), BATCHES)])
    lines = [f"A batch asks for {asked:,} rows, of which {unique:,.0f} are different.\n"]
    for name, m in results.items():
        share = f"{results[LOCAL].best / m.best:.2f} / {results[LOCAL].median / m.median:.2f}"
        speed = f"{asked / m.best / 1e6:.2f} / {asked / m.median / 1e6:.2f} million rows/s"
        lines.append(f"- {name}: {speed} (best / median), {share} of the local EmbeddingBag\n")
    return "\n".join([lines[0], "".join(lines[1:])])


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=20)
    p.add_argument("--steps", type=int, default=20)
    args = p.parse_args()
    torch.set_num_threads(1)
    title = f"{EXAMPLES} x {SLOTS} ids, rows of {WIDTH} floats, a table of {ROWS:,}"
    results = measure(args.rounds, args.steps)
    harness.write(
        "ps-lookup", harness.table(title, results, LOOKUP) + "\n" + summary(results), {title: results}
    )


if __name__ == "__main__":
    main()
