"""What measuring requests costs a parameter server: small requests with and without the meter, alternately.

python benchmarks/ps_measurements.py            requests of one row; one at a time, and 64 in flight
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import harness
import torch

from argosy.engine.ps.rpc.client import Client
from argosy.engine.ps.rpc.request_meter import RequestMeter
from argosy.engine.ps.rpc.server import Handler, RpcServer
from argosy.engine.ps.rpc.sockets import RpcSettings

ON, OFF = "measured", "not measured"


def serve(connection: Connection) -> None:
    """A server that echoes; the pipe switches its meter, or ends it."""
    handlers = {"echo": Handler("get", lambda request: request.reply({}, request.tensors), repeatable=True)}
    server = RpcServer("127.0.0.1:0", RpcSettings(), handlers, lambda _: None)
    thread = threading.Thread(target=server.serve)
    thread.start()
    connection.send(server.endpoint)
    while (switch := connection.recv()) is not None:
        server.meter = RequestMeter() if switch else None
        connection.send(switch)
    server.stop()
    thread.join()


def measure(rounds: int, requests: int, in_flight: int) -> dict[str, harness.Measured]:
    process, ours = harness.start(serve)
    client = Client([ours.recv()], "trainer 0", 0, RpcSettings())
    results = {ON: harness.Measured(), OFF: harness.Measured()}
    row = [torch.ones(16)]
    for number in harness.in_rounds(rounds):
        for name in (ON, OFF) if number % 2 else (OFF, ON):
            ours.send(name == ON)
            ours.recv()
            began = time.perf_counter()
            for _ in range(requests // in_flight):
                for reply in [client.start(0, "echo", {}, row) for _ in range(in_flight)]:
                    reply.wait()
            results[name].seconds.append((time.perf_counter() - began) / requests)
    client.close()
    ours.send(None)
    process.join(20)
    return results


def one_request_ns() -> float:
    """Processor time of the meter alone, per request."""
    meter, count = RequestMeter(), 200_000
    began = time.thread_time()
    for _ in range(count):
        meter.add("pull", 1.3e-4, 100)
    return 1e9 * (time.thread_time() - began) / count


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=30)
    p.add_argument("--requests", type=int, default=1024)
    args = p.parse_args()
    torch.set_num_threads(1)
    cases = {f"{n} in flight": measure(args.rounds, args.requests, n) for n in (1, 64)}
    text = "\n".join(harness.table(f"requests of 64 bytes, {case}", m, ON) for case, m in cases.items())
    ratios = "; ".join(
        f"{case}: {m[OFF].best / m[ON].best:.3f} / {m[OFF].median / m[ON].median:.3f}"
        for case, m in cases.items()
    )
    text += f"\nSpeed with measurements over the speed without them, best / median: {ratios}. "
    text += f"The meter alone: {one_request_ns():.0f} ns of processor time per request.\n"
    harness.write("ps-measurements", text, cases)


if __name__ == "__main__":
    main()
