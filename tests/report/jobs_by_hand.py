"""Job directories with known numbers, as the ranks, the servers and the launcher write them."""

# SPDX-License-Identifier: Apache-2.0
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START = 1_790_000_000.0
VERSIONS = {"argosy": "0.9", "torch": "2.13.0", "python": "3.11.9"}


@dataclass
class Job:
    """A job whose ranks compute 80 ms and are blocked for 20 ms per step; rank `slow` computes longer."""

    ranks: int = 2
    seconds: int = 20
    slow: int | None = None
    slow_ms: float = 30.0
    busy_ms: float = 80.0
    exposed_ms: float = 20.0
    state: str = "completed"
    failure: dict[str, Any] | None = None
    settings: dict[str, Any] | None = None
    servers: int = 0
    restarts: int = 0

    def write(self, path: Path) -> Path:
        """Write the directory."""
        metrics = path / "metrics"
        metrics.mkdir(parents=True, exist_ok=True)
        processes = []
        for rank in range(self.ranks):
            lines = "".join(json.dumps(r) + "\n" for r in self.records(rank))
            (metrics / f"rank{rank}.jsonl").write_text(lines)
            (metrics / f"rank{rank}.profile.json").write_text(json.dumps(self.profile(rank)))
            (path / f"workerlog.{rank}").write_text(f"hello from rank {rank}\n")
            processes.append(_process("rank", rank, self.state))
        for number in range(self.servers):
            lines = "".join(json.dumps(r) + "\n" for r in self.server_records(number))
            (metrics / f"server{number}.jsonl").write_text(lines)
            processes.append(_process("server", number, self.state))
        (metrics / "events.jsonl").write_text("".join(json.dumps(e) + "\n" for e in self.events()))
        (path / "job.json").write_text(json.dumps(self.job() | {"processes": processes}))
        return path

    def job(self) -> dict[str, Any]:
        is_running = self.state == "running"
        return {
            "version": 1,
            "state": self.state,
            "mode": "ps" if self.servers else "collective",
            "command": "fleetrun --nproc_per_node=2 train.py --lr 0.1",
            "script": "train.py",
            "options": {"nproc_per_node": self.ranks},
            "host": "host-0",
            "nodes": 1,
            "started": START,
            "ended": None if is_running else START + self.seconds + 3,
            "exit_code": None if is_running else int(self.state == "failed"),
            "restart": self.restarts,
            "launcher_pid": 4321,
            "versions": VERSIONS,
            "failure": self.failure,
        }

    def records(self, rank: int) -> list[dict[str, Any]]:
        start = {
            "kind": "start",
            "time": START + 1,
            "version": 1,
            "role": "worker" if self.servers else "rank",
        }
        start |= {
            "rank": rank,
            "size": self.ranks,
            "local_rank": rank,
            "host": f"host-{rank // 8}",
            "pid": 100 + rank,
        }
        start |= {"restart": 0, "threads": 2, "versions": VERSIONS}
        settings = self.settings if self.settings is not None else {"fuse_grad_size_in_MB": 32}
        records = [start, {"kind": "strategy", "time": START + 1, "text": "a strategy", "settings": settings}]
        step = 0
        for second in range(self.seconds):
            step += 10
            at = START + 2 + second
            records.append(self.steps(rank, step, at))
            if second % 5 == 4:
                records.append(self.sample(rank, step, at))
            values = {"loss": 2.0 * math.exp(-step / 150) + 0.1, "lr": 0.1}
            records.append(
                {"kind": "values", "time": at, "step": step, "values": values, "reduce": {"lr": "last"}}
            )
        if self.state == "completed":
            records.append({"kind": "end", "time": START + 2 + self.seconds, "outcome": "done"})
        return records

    def own_ms(self, rank: int) -> float:
        return self.busy_ms + (self.slow_ms if rank == self.slow else 0.0)

    def blocked_ms(self, rank: int) -> float:
        longest = self.busy_ms + (self.slow_ms if self.slow is not None else 0.0)
        return self.exposed_ms + longest - self.own_ms(rank)

    def steps(self, rank: int, step: int, at: float) -> dict[str, Any]:
        busy, blocked = self.own_ms(rank), self.blocked_ms(rank)
        lists = {"period_ms": busy + blocked + 5, "busy_ms": busy, "exposed_ms": blocked, "outside_ms": 5.0}
        return {
            "kind": "steps",
            "time": at,
            "step": step,
            "steps": 10,
            "group": 1,
            **{key: [value] * 10 for key, value in lists.items()},
            "input_ms": [2.0] * 10,
            "examples": 160,
            "sent_bytes": 10_000_000,
            "rss": 500_000_000 + 1000 * step,
            "peak_rss": 600_000_000 + rank,
            "cpu_s": 1.5,
            "wall_s": 1.0,
            "delay_s": 0.01,
            "minor_faults": 10,
            "major_faults": 0,
            "preempted": 3,
            "mhz": 3000.0,
            "prefetch_hits": 9 if self.servers else 0,
            "prefetch_misses": 1 if self.servers else 0,
        }

    def sample(self, rank: int, step: int, at: float) -> dict[str, Any]:
        busy = self.own_ms(rank)
        parts = {"forward": 0.3, "backward": 0.5, "optimize": 0.1, "communicate": 0.05, "other": 0.05}
        times = {f"{name}_ms": busy * share for name, share in parts.items()}
        blocked = self.blocked_ms(rank)
        return {
            "kind": "sample",
            "time": at,
            "step": step,
            "step_ms": busy + blocked,
            "exposed_ms": blocked,
            **times,
        }

    def profile(self, rank: int) -> dict[str, Any]:
        nodes = [
            ("fc_0.tmp_0", "addmm", "forward", "train.py:8", 20.0),
            ("fc_1.tmp_0", "addmm", "forward", "train.py:9", 4.0),
            ("mm_1", "mm", "backward", "train.py:8", 40.0),
            ("sgd_1", "sgd", "optimize", "train.py:10", 8.0),
        ]
        node_keys = ("name", "op", "role", "source", "ms")
        collectives = [("all_reduce big", 4_000_000, 10.0), ("all_reduce small", 3_900_000, 40.0)]
        return {
            "step": 200,
            "program": "main_program",
            "nodes": [dict(zip(node_keys, node, strict=True)) | {"kind": "float32[N, 8]"} for node in nodes],
            "collectives": [
                {
                    "name": n,
                    "group": "dp",
                    "bytes": b,
                    "ms": ms + 2 * rank,
                    "queue_ms": 1.0,
                    "wait_ms": ms / 2,
                }
                for n, b, ms in collectives
            ],
            "memory": {
                "peak_bytes": 50_000_000 + rank,
                "breakdown": {"parameters": 10_000_000, "kept for backward": 40_000_000},
                "node": "mm_1",
                "source": "train.py:8",
                "largest": [
                    {
                        "name": "fc_0.tmp_0",
                        "kind": "float32[N, 8]",
                        "what": "kept for backward",
                        "nbytes": 9,
                        "source": "train.py:8",
                    }
                ],
            },
        }

    def server_records(self, number: int) -> list[dict[str, Any]]:
        start = {
            "kind": "start",
            "time": START,
            "version": 1,
            "role": "server",
            "rank": number,
            "host": "host-0",
            "pid": 9,
        }
        tables = [
            {
                "name": "emb",
                "rows": 1000,
                "bytes": 64_000,
                "pulled_rows": 500,
                "pushed_rows": 250,
                "spilled_fraction": 0.25,
            }
        ]
        requests = {
            "pull": {"count": 100, "p50_ms": 0.5, "p90_ms": 1.0, "p99_ms": 2.0 + number, "bytes": 5_000}
        }
        return [start] + [
            {"kind": "tables", "time": START + 1 + second, "interval_s": 1.0, "requests": requests, "queue": second % 3,
             "staleness": {"mean": 0.5, "max": 2}, "trainers": self.ranks, "tables": tables,
             "dense": {"variables": 3, "bytes": 4_000}, "rss": 80_000_000}
            for second in range(self.seconds)
        ]  # fmt: skip

    def events(self) -> list[dict[str, Any]]:
        if self.slow is None:
            return []
        text = f"rank {self.slow} is slower than the others"
        return [{"time": START + 9, "kind": "straggler", "text": text, "role": "rank", "rank": self.slow}]


def _process(role: str, rank: int, state: str) -> dict[str, Any]:
    is_done = state == "completed"
    log = f"{'server' if role == 'server' else 'worker'}log.{rank}"
    return {
        "role": role,
        "rank": rank,
        "local_rank": rank,
        "host": f"host-{rank // 8}",
        "pid": 100 + rank,
        "log": log,
        "state": "done" if is_done else "running",
        "exit": 0 if is_done else None,
    }


def write_error(
    path: Path, rank: int, type_: str, message: str, ranks: tuple[int, ...] = (), at: float = START
) -> None:
    """The error file of a rank."""
    fields: dict[str, Any] = {
        "type": type_,
        "message": message,
        "where": "train.py:12, in step",
        "traceback": f"Traceback\n{type_}: {message}",
    }
    fields |= {
        "exit_code": 1,
        "pid": 100 + rank,
        "time": at,
        "step": 40,
        "ranks": ranks,
        "state": "failed" if ranks else "",
    }
    (path / f"workererror.{rank}").write_text(json.dumps(fields))
