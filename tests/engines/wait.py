"""A job without torch that starts in a moment: each process writes its pid, and waits.

wait.py [seconds]            default: for ever
"""

# SPDX-License-Identifier: Apache-2.0
import os
import sys
import time
from pathlib import Path


def main() -> None:
    kind = "server" if os.environ.get("TRAINING_ROLE") == "PSERVER" else "worker"
    number = os.environ.get("PADDLE_PSERVER_ID" if kind == "server" else "PADDLE_TRAINER_ID", "0")
    Path("pids").mkdir(exist_ok=True)
    path = Path(f"pids/{kind}.{number}")
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_text(f"{os.getpid()}\n")
    temporary.replace(path)
    print(f"{kind} {number} waits", flush=True)
    time.sleep(float(sys.argv[1]) if sys.argv[1:] else 3600.0)


main()
