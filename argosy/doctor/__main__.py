"""A rank of the job of `fleetrun --doctor`; by itself, `python -m argosy.doctor` checks this host with one rank."""

# SPDX-License-Identifier: Apache-2.0
import argparse
import contextlib
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence

from argosy.doctor import report, software
from argosy.doctor.check import Check, worst
from argosy.engine import env


def parser() -> argparse.ArgumentParser:
    """The arguments, which fleetrun passes."""
    p = argparse.ArgumentParser(prog="python -m argosy.doctor", description=__doc__)
    p.add_argument("directory", nargs="?", default=".", metavar="DIR", help="directory of checkpoints")
    p.add_argument("--json", action="store_true", help="print one JSON document")
    p.add_argument("--columns", type=int, metavar="N", help="of the terminal (default: plain text)")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """0: no failure, though there may be warnings. 1: a failure. The first rank of every host prints the report."""
    known = parser().parse_args(argv)
    with _silenced(known.json):
        hosts, checks = _run(os.path.abspath(known.directory))
    launched, seconds = env.launched(env.variables()), _age_s()
    if not launched.local_rank:
        if known.json:
            print(report.document(checks, hosts, launched.size, seconds))
        else:
            report.show(checks, len(hosts), launched.size, seconds, known.columns)
    return 1 if worst(checks) == "failure" else 0


def _run(directory: str) -> tuple[list[str], list[Check]]:
    """The names of the hosts, and all checks. Without torch there is no job: only the software is checked."""
    try:
        from argosy.doctor.job import run
    except ImportError:
        return [socket.gethostname()], software.check()
    results = run(directory)
    return results.hosts, results.checks


def _age_s() -> float:
    """How long this process has run, imports included."""
    with open("/proc/self/stat", "rb") as file:
        started = int(file.read().rpartition(b")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


@contextlib.contextmanager
def _silenced(is_silenced: bool) -> Iterator[None]:
    """Nothing is printed inside, also by C++; an exception shows what would have been."""
    if not is_silenced:
        yield
        return
    sys.stdout.flush()
    before = os.dup(1), os.dup(2)
    with tempfile.TemporaryFile() as kept:
        for descriptor in (1, 2):
            os.dup2(kept.fileno(), descriptor)
        try:
            yield
        except BaseException:
            sys.stderr.flush()
            kept.seek(0)
            os.write(before[1], kept.read())
            raise
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for descriptor, old in enumerate(before, start=1):
                os.dup2(old, descriptor)
                os.close(old)


if __name__ == "__main__":
    sys.exit(main())
