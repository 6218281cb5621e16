"""Ranks that all-reduce a tensor repeatedly; one of them fails in its fourth step, in a chosen way."""

# SPDX-License-Identifier: Apache-2.0
import os
import signal
import sys
import time

import torch

from argosy.engine import collective

HOW = ("exception", "sys.exit", "SystemExit", "_exit0", "_exit1", "return", "kill", "stop", "loop")


def fail(how: str) -> None:
    """Fail in this way; "return" is left to the caller."""
    if how == "exception":
        raise ValueError("a bad batch")
    if how == "sys.exit":
        sys.exit(3)
    if how == "SystemExit":
        raise SystemExit(3)
    if how in ("_exit0", "_exit1"):
        os._exit(int(how[-1]))
    if how in ("kill", "stop"):
        os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[how])
    while how == "loop":
        pass


def main(how: str, victim: int) -> None:
    world = collective.connect()
    group = world.group("dp")
    for step in range(1_000_000):
        if step == 3 and world.rank == victim:
            with open("failed_at", "w") as file:
                file.write(f"{time.monotonic()}\n")
            if how == "return":
                return
            fail(how)
        group.all_reduce(torch.ones(1000), what="w@GRAD")
        world.count_step()
        time.sleep(0.02)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
