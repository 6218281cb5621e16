"""The proof itself: it finds weights that differ, and what a job has left behind."""

# SPDX-License-Identifier: Apache-2.0
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.engines import install
from tests.engines.proof import ONE_HOST, WAIT, EngineJob, Reference


def test_weights_that_differ_in_one_bit_are_found(reference: Reference, tmp_path: Path) -> None:
    weights, path = reference.weights("wide_and_deep"), tmp_path / "weights.npz"
    np.savez(path, **weights)
    reference.check("wide_and_deep", path)
    table = weights["table"].copy()
    table[3, 2] = np.nextafter(table[3, 2], 1, dtype="float32")
    np.savez(path, **(weights | {"table": table}))
    with pytest.raises(AssertionError, match=r"not bit-equal: \['table'\]"):
        reference.check("wide_and_deep", path)


def test_a_waiting_job_writes_its_pids_and_is_found_until_it_is_killed(job: EngineJob) -> None:
    process = job.start(*ONE_HOST["resnet18"], WAIT)
    expected = {process.pid, job.pid("worker.0"), job.pid("worker.1")}
    pids = {p.pid for p in job.alive()}
    assert expected <= pids
    with pytest.raises(AssertionError, match="processes are left"):
        job.check_nothing_left(within_s=0.1)
    os.kill(job.pid("worker.1"), signal.SIGKILL)
    done = job.finish(process)
    assert done.returncode == 1
    assert "rank 1" in done.stdout + done.stderr
    job.check_nothing_left()


def test_segments_and_temporary_files_that_a_job_leaves_are_found(job: EngineJob) -> None:
    segment = Path(f"/dev/shm/{job.mark}")
    segment.write_bytes(b"x")
    try:
        with pytest.raises(AssertionError, match=job.mark):
            job.check_nothing_left(within_s=0.1)
    finally:
        segment.unlink()
    (job.temporary / "left").mkdir()
    with pytest.raises(AssertionError, match=r"temporary files are left: \['left'\]"):
        job.check_nothing_left()


def test_the_installer_never_fails_and_says_what_it_did() -> None:
    done = subprocess.run(
        [sys.executable, install.__file__], capture_output=True, text=True, check=True, timeout=600
    )
    assert done.stdout.count("\n") == 1
    assert any(word in done.stdout for word in ("installed", "skipped"))
