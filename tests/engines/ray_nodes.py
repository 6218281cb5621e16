"""A real Ray cluster of several nodes on this host, in a process of its own: it takes one command per line.

add               one more node with two CPUs
drain ID          report to Ray that this node is about to be removed
state             the alive actors and the placement groups of all jobs, as JSON
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import functools
import importlib
import inspect
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # it has no annotations

HEALTH = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 20000,
    "health_check_failure_threshold": 2,
}
"""Ray notices a killed node within seconds; its default is 16 s. A node that is slow on a busy machine is not dead."""


PATIENT = {"RAY_raylet_start_wait_time_s": "300", "RAY_agent_register_timeout_ms": "300000"}
"""For a busy machine: the limits for the start of a node, 60 s and 30 s, are longer."""


class RayNodes:
    """The cluster, for tests; `environ` connects fleetrun to it."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="argosy-")
        self._errors = Path(self._folder, "errors")
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        os.mkdir(f"{self._folder}/ray")
        settings = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", "RAY_TMPDIR": self._folder}
        environ = os.environ | token | settings | PATIENT
        command = [sys.executable, __file__, self._folder]
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._nodes: list[psutil.Process] = []
        try:
            self.environ = token | {"RAY_ADDRESS": self._reply()}
        except BaseException:
            self.close()
            raise

    def _reply(self) -> str:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            if line.startswith("reply: "):
                return line.removeprefix("reply: ").strip()
        raise AssertionError(f"the Ray cluster has ended: {self._errors.read_text()}")

    def call(self, command: str) -> str:
        """Send a command to the cluster's process; returns its reply."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return self._reply()

    def ensure(self, number: int) -> None:
        """Add nodes until this many are alive."""
        self._nodes = [node for node in self._nodes if is_alive(node)]
        while len(self._nodes) < number:
            self._nodes.append(psutil.Process(int(self.call("add"))))

    def node_of(self, pid: int) -> psutil.Process:
        """The raylet of the node on which this process of a job runs."""
        return next(p for p in psutil.Process(pid).parents() if p in self._nodes)

    def spare_nodes(self, pids: list[int]) -> list[psutil.Process]:
        """The nodes on which none of these processes runs."""
        used = [self.node_of(pid) for pid in pids]
        return [node for node in self._nodes if node not in used and is_alive(node)]

    def kill_node_of(self, pid: int) -> None:
        """Kill the node on which this process runs."""
        self.kill_node(self.node_of(pid))

    def kill_node(self, raylet: psutil.Process) -> None:
        """Kill a node with all that runs on it, at once."""
        for process in [*raylet.children(recursive=True), raylet]:
            process.suspend()  # else the first to die lets others clean up, as no power failure does
        for process in [*raylet.children(recursive=True), raylet]:
            process.kill()
        while is_alive(raylet):
            time.sleep(0.01)

    def drain_node_of(self, pid: int) -> None:
        """Tell Ray that the node of this process is about to be removed."""
        words = self.node_of(pid).cmdline()
        self.call("drain " + next(w.split("=")[1] for w in words if w.startswith("--node_id=")))

    def state(self) -> Any:
        """{"actors": [...], "groups": [...]}: what is alive on the cluster."""
        return json.loads(self.call("state"))

    def close(self) -> None:
        """Stop all nodes, and remove their files."""
        children = psutil.Process(self._process.pid).children(recursive=True)
        self._process.communicate(timeout=60)
        for process in children:
            if is_alive(process):
                process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


def is_alive(process: psutil.Process) -> bool:
    """False also for a killed process that its parent has not reaped."""
    return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)


def agent_ports() -> dict[str, int]:
    """Free ports for the agents of a node; see `do_not_wait_for_agents`."""
    names = ("metrics_agent", "metrics_export", "dashboard_agent_listen", "runtime_env_agent")
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("", 0))) for _ in names]
        return {f"{name}_port": s.getsockname()[1] for name, s in zip(names, sockets, strict=True)}


def do_not_wait_for_agents() -> None:
    """Let a raylet start at once: it ends if the agents of its node, which no test needs, take more than 15 s."""
    services = importlib.import_module("ray._private.services")
    raylet = importlib.import_module("ray._raylet")
    start = services.start_raylet

    @functools.wraps(start)
    def start_raylet(*args: Any, **options: Any) -> Any:
        given = inspect.signature(start).bind(*args, **options).arguments
        raylet.persist_port(
            given["session_dir"], given["node_id"], raylet.DASHBOARD_AGENT_LISTEN_PORT_NAME, -1
        )
        return start(*args, **options)

    vars(services)["start_raylet"] = start_raylet


def main(folder: str) -> None:
    import ray
    from ray._raylet import GcsClient
    from ray.cluster_utils import Cluster

    options = {"include_dashboard": False, "temp_dir": f"{folder}/ray", "object_store_memory": 80 << 20}
    do_not_wait_for_agents()
    head = {"num_cpus": 0, "_system_config": HEALTH, **options, **agent_ports()}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    print(f"reply: {cluster.address}", flush=True)
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        reply = ""
        if command == "add":
            node = cluster.add_node(num_cpus=2, object_store_memory=80 << 20, **agent_ports())
            reply = str(node.all_processes["raylet"][0].process.pid)
        elif command == "drain":
            deadline = int((time.time() + 600) * 1000)
            client = GcsClient(address=cluster.address)
            accepted, why = client.drain_node(argument, 2, "a test", deadline)  # 2: preemption
            assert accepted, why
        elif command == "state":
            ray.init(address=cluster.address, log_to_driver=False, ignore_reinit_error=True)
            actors = [a for a in ray._private.state.actors().values() if a["State"] != "DEAD"]
            table = ray.util.placement_group_table().values()
            groups = [g for g in table if g["state"] != "REMOVED"]
            reply = json.dumps({"actors": actors, "groups": groups}, default=str)
        print(f"reply: {reply}", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
