"""A job in a lab: one fleetrun on each host; the one of host 0 speaks, the others into files."""

# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.network import Lab

AFTER_FAILURE_S = 10.0
"""How long the other hosts have to end by themselves once one has failed."""
_LAST_LINES = 20


def run(lab: Lab, words: Sequence[str], ranks: int = 1, threads: int = 1, log_dir: Path = Path("log")) -> int:
    """Run `fleetrun words` with so many ranks on each host.

    Gives 0, or the exit code of the host that failed first. The logs of host i are in log_dir/host<i>.
    """
    launchers = [
        _start(lab, host, words, ranks, threads, log_dir / f"host{host}") for host in range(len(lab.names))
    ]
    failed = _wait(launchers)
    if failed is None:
        return 0
    if failed:
        _say_end(failed, log_dir / f"host{failed}")
    code: int = launchers[failed].returncode
    return code if code > 0 else 128 - code


def _start(
    lab: Lab, host: int, words: Sequence[str], ranks: int, threads: int, log_dir: Path
) -> subprocess.Popen[Any]:
    log_dir.mkdir(parents=True, exist_ok=True)
    launch = [sys.executable, "-m", "argosy.distributed.launch", f"--ips={','.join(lab.addresses)}"]
    options = [f"--nproc_per_node={ranks}", f"--log_dir={log_dir}"]
    environ = os.environ | {"OMP_NUM_THREADS": str(threads)}
    if host == 0:
        return lab.start(host, [*launch, *options, *words], env=environ)
    with _console(log_dir).open("w") as console:
        return lab.start(host, [*launch, *options, *words], env=environ, stdout=console, stderr=console)


def _wait(launchers: Sequence[subprocess.Popen[Any]]) -> int | None:
    """The host that failed first, or None; returns when all have ended, or have had time enough to."""
    failed, until = None, float("inf")
    while time.monotonic() < until:
        codes = [launcher.poll() for launcher in launchers]
        if failed is None and any(codes):
            failed = next(host for host, code in enumerate(codes) if code)
            until = time.monotonic() + AFTER_FAILURE_S
        if None not in codes:
            break
        time.sleep(0.05)
    return failed


def _say_end(host: int, log_dir: Path) -> None:
    """The cause may stand only in what a host other than the first has said."""
    path = _console(log_dir)
    lines = path.read_text(errors="replace").splitlines()[-_LAST_LINES:]
    print(f"host {host} failed first; the end of {path}:", *lines, sep="\n", file=sys.stderr)


def _console(log_dir: Path) -> Path:
    return log_dir / "console.txt"
