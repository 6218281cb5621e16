"""Seeds of the simulation are right and repeat exactly; planted bugs are found."""

# SPDX-License-Identifier: Apache-2.0
import os
import re
import subprocess
import sys

import pytest

from tests.simulation.mutants import MUTANTS

LEAST_MUTANTS = 25


def run(*arguments: str) -> str:
    """A process of its own: what happens may depend on the order of sets of strings."""
    env = {**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *arguments], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_five_seeds_are_right() -> None:
    """`make test-slow` runs 300, and `make soak` as many as there is time for."""
    assert "5 seeds" in run("tests.simulation", "--seeds", "5")


@pytest.mark.slow
def test_a_seed_repeats_exactly_in_another_process() -> None:
    first, second = (re.search("digest .*", run("tests.simulation", "--seed", "7")) for _ in range(2))
    assert first is not None
    assert second is not None
    assert first[0] == second[0]


@pytest.mark.slow
def test_every_planted_bug_is_found() -> None:
    assert len(MUTANTS) >= LEAST_MUTANTS
    assert f"{len(MUTANTS)} mutants, 0 not found" in run("tests.simulation.mutants")
