"""The files of a run: logs and error files of its processes, the launcher's log, records. Old ones are rotated.

workerlog.0  workererror.0  serverlog.0  servererror.0  endpoints.log      of an attempt
fleetrun.log  job.json  metrics/  report.html                              of a job, with all its restarts
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import re
import shutil
from collections.abc import Mapping, Sequence

from argosy.engine.errors import ConfigError
from argosy.engine.launch.console import logger

NUM_KEPT = 5
"""How many old versions of a file are kept."""
LAUNCHER_LOG = "fleetrun.log"
_OF_ATTEMPT = re.compile(r"(?:node\d+\.)?(?:worker|server)log\.\d+|endpoints\.log")
_OF_NODE = re.compile(r"node\d+\.fleetrun\.log")
_OF_JOB = (LAUNCHER_LOG, "dashboard.log", "job.json", "metrics", "report.html")
_FULL = 64 * 1024
"""A disk with fewer free bytes counts as full: the last lines of a process may be missing."""


def prepare(log_dir: str) -> None:
    """Create the directory; raise if it is not writable."""
    try:
        os.makedirs(log_dir, exist_ok=True)
        probe = os.path.join(log_dir, f".fleetrun-{os.getpid()}")
        try:
            with open(probe, "wb") as file:
                file.write(bytes(4096))
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(probe)
    except OSError as e:
        raise ConfigError(
            f"--log_dir={log_dir}: cannot write there ({e.strerror}); choose another directory"
        ) from e


def rotate(log_dir: str, restarts: bool = False) -> None:
    """Rotate the files of the last run: x -> x.1 -> x.2 …; the oldest of five is deleted.

    `restarts`: of the last attempt, in the same job.

    All of them, also those of ranks that the next run does not have, so that equal numbers are of one run.
    """
    try:
        for name in sorted(os.listdir(log_dir)):
            is_of_job = name in _OF_JOB or _OF_NODE.fullmatch(name)
            if _OF_ATTEMPT.fullmatch(name) or (is_of_job and not restarts):
                rotate_file(os.path.join(log_dir, name))
    except OSError as e:
        raise ConfigError(
            f"--log_dir={log_dir}: cannot rotate the files of the last run ({e}); choose another directory"
        ) from e


def rotate_file(path: str) -> str:
    """Rename a log, or a directory, to number 1, and each older one to the next number; returns the new name.

    Error files are rotated with the logs of their processes, so that equal numbers are of one run.
    """
    for moved in {path, error_file(path)}:
        oldest = f"{moved}.{NUM_KEPT}"
        if os.path.isdir(oldest):
            shutil.rmtree(oldest)
        elif os.path.exists(oldest):
            os.unlink(oldest)
        for number in range(NUM_KEPT - 1, -1, -1):
            source = f"{moved}.{number}" if number else moved
            if os.path.exists(source):
                os.replace(source, f"{moved}.{number + 1}")
    return f"{path}.1"


def process_log(log_dir: str, role: str, local_rank: int) -> str:
    """Where the stdout and stderr of a process of this host go."""
    return os.path.join(log_dir, f"{'serverlog' if role == 'server' else 'workerlog'}.{local_rank}")


def error_file(log: str) -> str:
    """The path of the error file of the process with this log; the path itself if it is no such log."""
    folder, name = os.path.split(log)
    return os.path.join(folder, re.sub(r"^(node\d+\.)?(worker|server)log\b", r"\1\2error", name))


def remote_log(node: int, name: str) -> str:
    """The name that a log of another node has in the directory of node 0."""
    return f"node{node}.{name}"


def launcher_log(log_dir: str) -> str:
    """Where the launcher's log lines and reports go."""
    return os.path.join(log_dir, LAUNCHER_LOG)


def write_endpoints(log_dir: str, lists: Mapping[str, Sequence[str]]) -> str:
    """Write Paddle's endpoints.log: the variable's name, then one endpoint per line; returns its path."""
    path = os.path.join(log_dir, "endpoints.log")
    try:
        with open(path, "w") as f:
            f.write("\n".join(f"{name}: \n" + "\n".join(endpoints) for name, endpoints in lists.items()))
    except OSError as e:
        logger.warning("cannot write %s (%s); the job continues without it", path, e.strerror)
    return path


def disk_is_full(path: str) -> bool:
    """True if the disk of this file is full."""
    try:
        disk = os.statvfs(os.path.dirname(path) or ".")
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < _FULL


def last_lines(path: str, count: int, max_bytes: int = 256 * 1024) -> list[str]:
    """The last lines of a log, read from its end."""
    try:
        with open(path, "rb") as f:
            f.seek(0, os.SEEK_END)
            f.seek(max(0, f.tell() - max_bytes))
            return f.read().decode(errors="replace").splitlines()[-count:]
    except OSError:
        return []
