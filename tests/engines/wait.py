"""A job without torch that starts in a moment: each process writes its pid, and waits.

wait.py [seconds]            default: for ever
"""

# SPDX-License-Identifier: Apache-2.0
import os
import sys
import time
from pathlib import Path


def main() -> None:
    kind, number = "worker", os.environ.get("PADDLE_TRAINER_ID")
    if os.environ.get("TRAINING_ROLE") == "PSERVER":
        endpoint = f"{os.environ['POD_IP']}:{os.environ['PADDLE_PORT']}"
        kind, number = "server", str(os.environ["PADDLE_PSERVERS_IP_PORT_LIST"].split(",").index(endpoint))
    Path("pids").mkdir(exist_ok=True)
    path = Path(f"pids/{kind}.{number}")
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_text(f"{os.getpid()}\n")
    temporary.replace(path)
    print(f"{kind} {number} waits", flush=True)
    time.sleep(float(sys.argv[1]) if sys.argv[1:] else 3600.0)


main()
