"""Scripts of tests that write records as ranks and servers do, without torch."""

# SPDX-License-Identifier: Apache-2.0

RECORD = """
import json
is_server = os.environ.get("TRAINING_ROLE") == "PSERVER"
number = 0 if is_server else int(os.environ["PADDLE_TRAINER_ID"])
def record(kind, **fields):
    name = f"log/metrics/{'server' if is_server else 'rank'}{number}.jsonl"
    with open(name, "a") as file:
        file.write(json.dumps({"kind": kind, "time": time.time(), **fields}) + "\\n")
def train(step, busy_ms=80.0, steps=10):
    lists = {"period_ms": [100.0], "busy_ms": [busy_ms], "exposed_ms": [100.0 - busy_ms], "outside_ms": [0.0],
             "input_ms": [0.0]}
    record("steps", step=step, steps=steps, group=steps, examples=160, sent_bytes=1000, rss=10**8, wall_s=1.0, **lists)
def serve():
    requests = {"Pull": {"count": 50, "p50_ms": 0.5, "p90_ms": 0.8, "p99_ms": 1.5, "bytes": 1000}}
    tables = [{"name": "embedding", "rows": 1234, "bytes": 5_000_000, "pulled_rows": 10, "pushed_rows": 5,
               "spilled_fraction": 0.25}]
    record("tables", interval_s=1.0, requests=requests, queue=3, staleness={"mean": 1.5, "max": 4}, trainers=2,
           tables=tables, dense={"variables": 2, "bytes": 1000}, rss=10**8)
def wait_for(name):
    while not os.path.exists(name): time.sleep(0.01)
"""
"""`record`, `train(step)`, `serve()`, `wait_for(file)`; for Fleetrun.script, whose head imports os, sys and time."""
