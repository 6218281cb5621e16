"""The shared memory of a process: real segments, real files in /dev/shm, real child processes."""

# SPDX-License-Identifier: Apache-2.0
import mmap
import os
import subprocess
import sys
import tempfile

from argosy.engine.metrics import shared_memory

HOLD = """
import mmap, sys
file = open(sys.argv[1], "r+b")
memory = mmap.mmap(file.fileno(), 0)
print("mapped", flush=True)
sys.stdin.read()
"""


def test_segments_and_files_count_once_also_those_of_child_processes() -> None:
    before = shared_memory.used()
    descriptor = os.memfd_create("argosy-shm")
    os.ftruncate(descriptor, 3 << 20)
    segment = mmap.mmap(descriptor, 3 << 20)
    os.close(descriptor)
    with (
        tempfile.NamedTemporaryFile(dir="/dev/shm") as mapped,
        tempfile.NamedTemporaryFile(dir="/dev/shm") as opened,
    ):
        mapped.truncate(5 << 20)
        opened.truncate(1 << 20)  # open here, mapped nowhere
        command = [sys.executable, "-c", HOLD, mapped.name]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "mapped\n"
            during = shared_memory.used()
            of_child = shared_memory.used(child.pid)
            child.communicate()
    segment.close()
    assert during.segments_bytes - before.segments_bytes == 3 << 20
    assert during.dev_shm_bytes - before.dev_shm_bytes == 6 << 20
    assert (of_child.segments_bytes, of_child.dev_shm_bytes) == (0, 5 << 20)
    assert shared_memory.used() == before
