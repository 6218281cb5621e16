"""64 ranks on one host: the job starts and finishes, and no rank uses more for it than a small job does."""

# SPDX-License-Identifier: Apache-2.0
import json
from pathlib import Path

import pytest

from tests.ranks import ForkServer
from tests.warm_fleetrun import WarmFleetrun

SCRIPT = str(Path(__file__).parents[2] / "benchmarks" / "scale" / "mlp.py")
NUM_RANKS = 64


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_64_ranks_train_an_mlp(tmp_path: Path, ranks: ForkServer) -> None:
    words = (f"--nproc_per_node={NUM_RANKS}", SCRIPT, str(tmp_path), "0")
    job = WarmFleetrun(ranks, *words, cwd=tmp_path)
    printed = "".join(job.communicate(timeout=800))
    assert job.returncode == 0, printed
    reports = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(NUM_RANKS)]
    for report in reports:
        assert report["losses"] == reports[0]["losses"]  # the same batches, and the same weights
        assert report["losses"][-1] < report["losses"][0]
        assert report["other_connections"] == 0  # collectives use shared memory
        assert report["threads"] < 16
        assert report["descriptors"] < 64 + 2 * NUM_RANKS + (report is reports[0]) * 2 * NUM_RANKS
    # Rank 0 has both ends of its own two connections.
    assert reports[0]["store_connections"] == 2 * NUM_RANKS + 2
    assert {report["store_connections"] for report in reports[1:]} == {2}
