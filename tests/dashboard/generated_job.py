"""Job directories as jobs write them (docs/reference/job-directory.md), generated: of any size, in no time."""

# SPDX-License-Identifier: Apache-2.0
import json
import math
import os
import random
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

LAYERS = ["conv1", "res2a", "res2b", "res3a", "res3b", "res4a", "res4b", "res5a", "res5b", "fc"]
RECORDS_PER_S = 2


@dataclass
class GeneratedJob:
    """A job that has run for some seconds; `advance` lets it run on."""

    log_dir: Path
    ranks: int = 2
    servers: int = 0
    step_ms: float = 42.0
    straggler: int | None = None
    """A rank whose computation takes longer,"""
    straggles_from: int = 0
    """and from which step on."""
    started: float = field(default_factory=time.time)
    seed: int = 7
    step: int = 0
    seconds: float = 0.0
    _files: dict[str, IO[str]] = field(default_factory=dict)
    job: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        (self.log_dir / "metrics").mkdir(parents=True, exist_ok=True)
        role = "worker" if self.servers else "rank"
        for rank in range(self.ranks):
            self._start(f"rank{rank}", role, rank, self.ranks)
            self._record(f"rank{rank}", "strategy", text="fuse_all_reduce, amp", settings={"amp": True})
            (self.log_dir / f"workerlog.{rank}").write_text(f"rank {rank} of {self.ranks} starts\n")
        for number in range(self.servers):
            self._start(f"server{number}", "server", number, self.servers)
            (self.log_dir / f"serverlog.{number}").write_text(f"server {number} listens\n")
        self.job = self._job()
        self.write_job()
        self.write_profiles()

    def __enter__(self) -> "GeneratedJob":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    # --- what the launcher writes ---------------------------------------------------------------------

    def _job(self) -> dict[str, Any]:
        roles = [("worker", "workerlog", n) for n in range(self.ranks)]
        roles += [("server", "serverlog", n) for n in range(self.servers)]
        processes = [
            {
                "role": role, "rank": n, "local_rank": n, "host": "host-a", "pid": 4000 + place, "state": "running",
                "log": f"{log}.{n}", "exit": None,
            }
            for place, (role, log, n) in enumerate(roles)
        ]  # fmt: skip
        return {
            "version": 1, "state": "running", "mode": "ps" if self.servers else "collective", "host": "host-a",
            "command": f"fleetrun --nproc_per_node={self.ranks} --dashboard train.py --layers 18", "script": "train.py",
            "options": {"nproc_per_node": self.ranks}, "nodes": 1, "started": self.started, "ended": None,
            "exit_code": None, "restart": 0, "launcher_pid": os.getpid(), "dashboard": None,
            "versions": {"argosy": "0.9", "torch": "2.13.0", "python": "3.11"}, "processes": processes, "failure": None,
        }  # fmt: skip

    def write_job(self) -> None:
        temporary = self.log_dir / "job.json.tmp"
        temporary.write_text(json.dumps(self.job))
        temporary.replace(self.log_dir / "job.json")

    def fail(self, rank: int) -> None:
        """A rank is killed, as the launcher reports it."""
        what = "killed by SIGKILL"
        self.job["processes"][rank] |= {"state": "failed", "exit": -9}
        self.job |= {"state": "failed", "ended": self.now, "exit_code": 137}
        self.job["failure"] = {
            "text": f"rank {rank} was {what}\n  rank 0 waited in all_reduce_3", "type": "SIGKILL", "what": what,
            "process": {"role": "worker", "rank": rank}, "hint": "see dmesg for the OOM killer", "where": None,
            "log": f"workerlog.{rank}", "waiting": [{"process": "rank 0", "what": "all_reduce_3 of step 120"}],
        }  # fmt: skip
        (self.log_dir / f"workererror.{rank}").write_text(
            "Traceback (most recent call last):\nKilled: SIGKILL\n"
        )
        self.event("failure", f"rank {rank} was {what}", role="worker", rank=rank)
        self.write_job()

    def event(self, kind: str, text: str, **fields: Any) -> None:
        self._write("events", {"kind": kind, "time": self.now, "text": text} | fields)

    # --- what the ranks write -------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self.started + self.seconds

    def advance(self, seconds: float) -> None:
        """Write what the processes write in so many seconds."""
        for _ in range(round(seconds * RECORDS_PER_S)):
            self.seconds += 1 / RECORDS_PER_S
            steps = max(1, round(1000 / RECORDS_PER_S / self.step_ms))
            self.step += steps
            for rank in range(self.ranks):
                self._steps(rank, steps)
                if self.step % 200 < steps:
                    self._sample(rank)
            self._values()
            if round(self.seconds * RECORDS_PER_S) % RECORDS_PER_S == 0:
                for number in range(self.servers):
                    self._tables(number)
        for file in self._files.values():
            file.flush()

    def _steps(self, rank: int, steps: int) -> None:
        noise = self._random.uniform(0.98, 1.03)
        slow = self.straggler is not None and self.step >= self.straggles_from
        busy = 0.72 * self.step_ms * noise * (1.18 if slow and rank == self.straggler else 1.0)
        outside = 0.05 * self.step_ms
        period = self.step_ms * self._random.uniform(0.99, 1.02) * (1.12 if slow else 1.0)
        group, entries = max(1, steps // 8), math.ceil(steps / max(1, steps // 8))
        fields: dict[str, Any] = {
            "step": self.step, "steps": steps, "group": group, "period_ms": [round(period, 3)] * entries,
            "busy_ms": [round(busy, 3)] * entries,
            "exposed_ms": [round(max(0.2, period - busy - outside), 3)] * entries,
            "outside_ms": [round(outside, 3)] * entries, "input_ms": [round(outside / 4, 3)] * entries,
            "examples": 32 * steps, "sent_bytes": 44_915_000 * steps, "rss": 812_000_000 + rank * 3_000_000,
            "peak_rss": 901_000_000 + rank * 3_000_000, "cpu_s": 0.48, "wall_s": 0.5, "delay_s": 0.01,
            "minor_faults": 12, "major_faults": 0, "preempted": 3, "mhz": 2900.0,
        }  # fmt: skip
        if self.servers:
            fields |= {"prefetch_hits": 950 * steps, "prefetch_misses": 50 * steps}
        self._record(f"rank{rank}", "steps", **fields)

    def _sample(self, rank: int) -> None:
        parts = {
            "forward": 0.22,
            "backward": 0.43,
            "optimize": 0.06,
            "communicate": 0.03,
            "exposed": 0.22,
            "other": 0.04,
        }
        if rank == self.straggler and self.step >= self.straggles_from:  # the others wait for it
            parts |= {"forward": 0.27, "backward": 0.52, "exposed": 0.08}
        ms = {f"{name}_ms": round(share * self.step_ms, 3) for name, share in parts.items()}
        self._record(f"rank{rank}", "sample", step=self.step, step_ms=sum(ms.values()), **ms)

    def _values(self) -> None:
        for rank in range(min(self.ranks, 2)):
            loss = 0.35 + 2.2 * math.exp(-self.step / 900) + self._random.gauss(0, 0.03)
            values = {"loss": loss, "accuracy": 1 - loss / 3, "lr": 0.1 * 0.5 ** (self.step // 2000)}
            reduce = {"loss": "mean", "accuracy": "mean", "lr": "last"}
            self._record(f"rank{rank}", "values", step=self.step, values=values, reduce=reduce)
            epoch = {"epoch": 1 + self.step // 1000, "epochs": 90, "batch": self.step % 1000, "batches": 1000}
            self._record(f"rank{rank}", "progress", what="train", **epoch)

    def _tables(self, number: int) -> None:
        requests = {
            kind: {"count": count, "p50_ms": 0.4, "p90_ms": 0.9, "p99_ms": 2.4, "bytes": count * 16_000}
            for kind, count in (("pull_rows", 480), ("push_rows", 470), ("push_dense", 24))
        }
        tables = [
            {
                "name": name, "rows": min(limit, 40 * self.step), "bytes": min(limit, 40 * self.step) * 272,
                "pulled_rows": 61_000, "pushed_rows": 60_100, "spilled_fraction": spilled,
            }
            for name, limit, spilled in (("embedding_user", 900_000, 0.31), ("embedding_item", 60_000, 0.0))
        ]  # fmt: skip
        self._record(
            f"server{number}", "tables", interval_s=1.0, requests=requests, queue=self._random.randrange(3),
            staleness={"mean": 1.4, "max": 4}, trainers=self.ranks, tables=tables,
            dense={"variables": 12, "bytes": 3_400_000}, rss=240_000_000,
        )  # fmt: skip

    def write_profiles(self) -> None:
        for rank in range(self.ranks):
            profile = _profile(self.step, self.step_ms, collective=not self.servers)
            (self.log_dir / "metrics" / f"rank{rank}.profile.json").write_text(json.dumps(profile))

    def log(self, rank: int, text: str) -> None:
        with (self.log_dir / f"workerlog.{rank}").open("a") as file:
            file.write(text + "\n")

    # --- files ----------------------------------------------------------------------------------------

    def _start(self, process: str, role: str, rank: int, size: int) -> None:
        versions = {"argosy": "0.9", "torch": "2.13.0", "python": "3.11"}
        self._record(
            process, "start", version=1, role=role, rank=rank, size=size, local_rank=rank, host="host-a",
            pid=4000 + rank, restart=0, threads=1, versions=versions,
        )  # fmt: skip

    def _record(self, process: str, kind: str, **fields: Any) -> None:
        self._write(process, {"kind": kind, "time": round(self.now, 3)} | fields)

    def _write(self, name: str, content: dict[str, Any]) -> None:
        if name not in self._files:
            self._files[name] = (self.log_dir / "metrics" / f"{name}.jsonl").open("a")
        self._files[name].write(json.dumps(content) + "\n")
        self._files[name].flush() if name == "events" else None


def _profile(step: int, step_ms: float, collective: bool) -> dict[str, Any]:
    nodes = []
    for role, share in (("forward", 0.25), ("backward", 0.5), ("optimize", 0.1)):
        for place, layer in enumerate(LAYERS):
            for op in ("convolution", "batch_norm", "relu"):
                name = f"{op}_{place}" + ("_grad" if role == "backward" else "")
                ms = share * step_ms / 30 * (1.6 if op == "convolution" else 0.7)
                nodes.append(
                    {
                        "name": name,
                        "op": f"aten.{op}",
                        "role": role,
                        "kind": "call",
                        "source": f"model.py:{20 + place} {layer}",
                        "ms": ms,
                    }
                )
    buckets = [
        ("fc.w@GRAD … res5a.w@GRAD", 33_784_000, 9.1),
        ("res4b.b@GRAD … conv1.w@GRAD", 11_131_000, 3.4),
    ]
    collectives = [
        {
            "name": f"all_reduce {name}",
            "group": group,
            "bytes": size,
            "ms": ms,
            "queue_ms": 0.1,
            "wait_ms": ms / 2,
        }
        for group, (name, size, ms) in zip(("dp", "dp.1"), buckets, strict=True)
    ]
    largest = [
        {
            "name": f"{layer}_out",
            "kind": "activation",
            "what": "activation",
            "nbytes": (12 - place) * 3_100_000,
            "source": f"model.py:{20 + place} {layer}",
        }
        for place, layer in enumerate(LAYERS)
    ]
    memory = {
        "peak_bytes": 412_000_000, "node": "convolution_7_grad", "source": "model.py:27 res4b", "largest": largest,
        "breakdown": {
            "activations": 241_000_000, "parameters": 46_000_000, "gradients": 46_000_000, "workspace": 33_000_000,
        },
    }  # fmt: skip
    return {
        "step": step,
        "program": "main",
        "nodes": nodes,
        "collectives": collectives if collective else [],
        "memory": memory,
    }


def this_host(job: GeneratedJob, pids: list[int]) -> None:
    """Let the processes be real ones of this host."""
    for process, pid in zip(job.job["processes"], pids, strict=True):
        process |= {"host": socket.gethostname(), "pid": pid}
    job.write_job()
