"""advise: the kind of a failure from what the process raised, how it ended, and its log."""

# SPDX-License-Identifier: Apache-2.0
import pytest

from argosy.report.advice import advise


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        ("MemoryError: cannot allocate 3 GB", "out of memory"),
        (
            "RuntimeError: [enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory",
            "out of memory",
        ),
        (
            "ended with SIGKILL killed from outside, often the kernel for lack of memory; see dmesg",
            "out of memory",
        ),
        ("ended with SIGBUS often /dev/shm is full; see df /dev/shm", "shared memory full"),
        ("OSError: [Errno 28] No space left on device: 'model.pdparams'", "disk full"),
        ("OSError: [Errno 98] Address already in use", "port in use"),
        ("argosy.engine.errors.NanInfError: log of fc_0 computed a NaN", "NaN or infinity"),
        ("ValueError: loss is nan", "NaN or infinity"),
        ("ModuleNotFoundError: No module named 'pandas'", "import failed"),
        (
            "all_reduce of 'w': rank 1 has not joined after 1800 s; it is alive and has done 5 steps",
            "timeout",
        ),
        ("TimeoutError: timed out", "timeout"),
        ("ConnectionResetError: Connection reset by peer", "connection lost"),
        ("PeerLostError: lost the connection to rank 1", "connection lost"),
        ("ConnectionRefusedError: [Errno 111] Connection refused", "no connection"),
        ("ScheduleError: the ranks have different programs: collective 3 of rank 1", "different programs"),
        ("all_reduce: deadlock: rank 1 waits in util#3 barrier", "deadlock"),
        ("all_reduce: rank 1 exited without error after 5 steps", "a rank ended early"),
        ("rank 1 runs, but sends no heartbeat", "unresponsive process"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data'", "missing file"),
        ("FeedError: the feed 'x' has the shape [3]", "invalid input"),
        ("ended with SIGSEGV", "crash in native code"),
        ("OSError: [Errno 24] Too many open files", "too many open files"),
        ("ZeroDivisionError: division by zero", "exception in the script"),
    ],
)
def test_the_kind_is_found_from_the_exception(what: str, kind: str) -> None:
    advice = advise(what, has_exception=True)
    assert advice.kind == kind
    assert advice.steps


def test_the_log_counts_only_without_an_exception() -> None:
    log = ["terminate called after throwing an instance of 'std::bad_alloc'"]
    assert advise("exit code 1", log, has_exception=False).kind == "out of memory"
    assert advise("ValueError: 7 labels", log, has_exception=True).kind == "exception in the script"
    assert advise("exit code 3", [], has_exception=False).kind == "unknown cause"
