"""The disk of a directory for checkpoints: its free space, write rate and fsync rate."""

# SPDX-License-Identifier: Apache-2.0
import os
import tempfile
import time

from argosy.doctor.check import Check, in_bytes, in_seconds

WRITE_BYTES = 64 << 20
SLOW_WRITE = 50e6
"""Bytes per second: below it a checkpoint of 1 GB takes more than 20 s."""
SLOW_FSYNC_S = 0.05
"""A parameter server with --server_durability=disk syncs once per step."""
FREE_BYTES = 1e9
_CHUNK = bytes(1 << 20)
_BUDGET_S = 1.5
"""Each measurement ends after this time, on a slow disk with fewer bytes."""
_SYNCS = 20


def check(directory: str) -> list[Check]:
    """Free space, write rate and fsync rate. The files have no names, so nothing is left behind."""
    try:
        free = _free(directory)
        rate, sync_s = write_rate(directory), sync_seconds(directory)
    except OSError as e:
        return [
            Check(
                "disk",
                "failure",
                f"{directory}: {e.strerror}",
                "give the directory of your checkpoints: fleetrun --doctor DIR; create it, or make it writable",
            )
        ]
    is_slow, is_slow_sync = rate < SLOW_WRITE, sync_s > SLOW_FSYNC_S
    return [
        Check(
            "disk space",
            "warning" if free < FREE_BYTES else "ok",
            f"{in_bytes(free)} free in {directory}",
            "delete old checkpoints, or write them elsewhere" if free < FREE_BYTES else "",
            free,
            "bytes",
        ),
        Check(
            "disk write",
            "warning" if is_slow else "ok",
            f"{rate / 1e6:.0f} MB/s, synced",
            "saving a checkpoint takes long: use a local disk, or save less often" if is_slow else "",
            rate,
            "bytes/s",
        ),
        Check(
            "disk fsync",
            "warning" if is_slow_sync else "ok",
            f"{in_seconds(sync_s)} for 4 kB",
            "parameter servers with --server_durability=disk wait for it: use a local disk"
            if is_slow_sync
            else "",
            sync_s,
            "s",
        ),
    ]


def _free(directory: str) -> int:
    disk = os.statvfs(directory)
    return disk.f_bavail * disk.f_frsize


def write_rate(directory: str) -> float:
    """Bytes per second of one sequential write with a final fsync."""
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        began, written = time.monotonic(), 0
        while written < WRITE_BYTES and time.monotonic() - began < _BUDGET_S:
            written += file.write(_CHUNK)
        os.fsync(file.fileno())
        return written / max(time.monotonic() - began, 1e-9)


def sync_seconds(directory: str) -> float:
    """The median duration of an fsync after a write of 4 kB at the end of a file."""
    durations: list[float] = []
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        began = time.monotonic()
        while len(durations) < _SYNCS and (not durations or time.monotonic() - began < _BUDGET_S):
            file.write(_CHUNK[:4096])
            before = time.monotonic()
            os.fsync(file.fileno())
            durations.append(time.monotonic() - before)
    return sorted(durations)[len(durations) // 2]
