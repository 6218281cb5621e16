"""Dense push + pull: Argosy's transport against raw pyzmq, between the same processes, taking turns.

python benchmarks/ps_dense.py                   2 trainers, 2 servers, blocks of 16 MB

    raw       a DEALER sends one frame of 16 MB, a ROUTER answers with one: nothing is computed, nothing checked
    argosy    push: the server computes p -= rate * g; pull: it answers p. Requests, exactly once, both ways

Each trainer has one block on each server; a step sends to both, then waits for both.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import functools
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import harness
import torch
import zmq

from argosy.engine.ps.rpc.client import Client
from argosy.engine.ps.rpc.server import Handler, Request, RpcServer
from argosy.engine.ps.rpc.sockets import RpcSettings

SERVERS = TRAINERS = 2
RATE = 0.01
CONTENDERS = ("argosy", "raw pyzmq")


def serve(connection: Connection, elements: int) -> None:
    """A server of both kinds: sends their addresses, and exits on command."""
    torch.set_num_threads(1)
    server = RpcServer("127.0.0.1:0", RpcSettings(), _handlers(elements), lambda _: None)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router = context.socket(zmq.ROUTER)
    port = router.bind_to_random_port("tcp://127.0.0.1")
    threads = [
        threading.Thread(target=server.serve),
        threading.Thread(target=_echo, args=(router, elements)),
    ]
    for thread in threads:
        thread.start()
    connection.send((server.endpoint, f"tcp://127.0.0.1:{port}"))
    connection.recv()
    server.stop()
    for thread in threads:
        thread.join()
    context.destroy(linger=0)


def _handlers(elements: int) -> dict[str, Handler]:
    parameters = [torch.zeros(elements) for _ in range(TRAINERS)]

    def push(request: Request) -> None:
        parameters[request.trainer].add_(request.tensors[0], alpha=-RATE)
        request.reply()

    def pull(request: Request) -> None:
        request.reply({}, [parameters[request.trainer]])

    return {"push": Handler("send", push), "pull": Handler("get", pull, repeatable=True)}


def _echo(router: "zmq.Socket[bytes]", elements: int) -> None:
    """Answer each frame with one of the same size, until an empty one comes."""
    block = torch.zeros(elements).numpy().data
    while True:
        who, given = router.recv_multipart(copy=False)
        if not len(given):
            break
        router.send_multipart([who, block], copy=False)


def train(connection: Connection, number: int, places: list[tuple[str, str]], elements: int) -> None:
    """A trainer: on command, runs steps of a contender and sends the times."""
    torch.set_num_threads(1)
    client = Client([place[0] for place in places], f"trainer {number}", number, RpcSettings())
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    dealers = [context.socket(zmq.DEALER) for _ in places]
    for dealer, (_, endpoint) in zip(dealers, places, strict=True):
        dealer.connect(endpoint)
    gradient = torch.ones(elements)
    steps: dict[str, Callable[[], None]] = {
        "argosy": functools.partial(_argosy_step, client, gradient),
        "raw pyzmq": functools.partial(_raw_step, dealers, gradient.numpy().data),
    }
    for step in steps.values():
        step()
    connection.send(None)
    while (order := connection.recv()) is not None:
        name, count = order
        times = []
        for _ in range(count):
            began = time.perf_counter()
            steps[name]()
            times.append(time.perf_counter() - began)
        connection.send(times)
    if number == 0:
        for dealer in dealers:
            dealer.send(b"")
    client.close()
    context.term()


def _argosy_step(client: Client, gradient: torch.Tensor) -> None:
    pushes = [client.start(server, "push", {}, [gradient]) for server in range(SERVERS)]
    pulls = [client.start(server, "pull") for server in range(SERVERS)]
    for reply in (*pushes, *pulls):
        reply.wait()


def _raw_step(dealers: "list[zmq.Socket[bytes]]", block: memoryview) -> None:
    for dealer in dealers:
        dealer.send(block, copy=False)
    for dealer in dealers:
        dealer.recv(copy=False)


def measure(rounds: int, steps: int, elements: int) -> dict[str, harness.Measured]:
    """Start everybody, let the contenders take turns; the slower trainer's time counts."""
    results = {name: harness.Measured() for name in CONTENDERS}
    servers = [harness.start(serve, elements) for _ in range(SERVERS)]
    places = [connection.recv() for _, connection in servers]
    trainers = [harness.start(train, number, places, elements) for number in range(TRAINERS)]
    for _, connection in trainers:
        connection.recv()
    for _ in harness.in_rounds(rounds):
        for name, measured in results.items():
            for _, connection in trainers:
                connection.send((name, steps))
            times = [connection.recv() for _, connection in trainers]
            measured.seconds += [max(both) for both in zip(*times, strict=True)]
    for process, connection in (*trainers, *servers):
        connection.send(None)
        process.join(20)
    return results


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=20)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--mb", type=int, default=16, help="of a block")
    args = p.parse_args()
    title = f"Push + pull of {args.mb} MB blocks, {TRAINERS} trainers, {SERVERS} servers"
    results = measure(args.rounds, args.steps, args.mb * 2**20 // 4)
    moved = 2 * SERVERS * TRAINERS * args.mb * 2**20 / 1e9
    speeds = [
        f"- {name}: {moved / m.best:.2f} GB/s at best, {moved / m.median:.2f} in the median (both directions, "
        "all trainers)\n"
        for name, m in results.items()
    ]
    harness.write(
        "ps-dense", harness.table(title, results, "argosy") + "\n" + "".join(speeds), {title: results}
    )


if __name__ == "__main__":
    main()
