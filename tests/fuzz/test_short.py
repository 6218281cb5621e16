"""A second of fuzzing; `make fuzz` runs 100,000 mutants under AddressSanitizer."""

# SPDX-License-Identifier: Apache-2.0
import time
import warnings
from random import Random

import pytest

from argosy import static
from argosy.engine.runtime import atomic_files
from tests.fuzz.child import RAW, judged
from tests.fuzz.mutate import mutated
from tests.fuzz.seeds import contents

SECONDS = 1.5
LEAST = 20


def test_the_models_themselves_load() -> None:
    for content in contents():
        loaded = static.deserialize_program(atomic_files.seal(content))
        assert len(loaded.graph.nodes) == len(content["program"]["nodes"])


def test_mutants_load_and_run_or_are_rejected_with_a_clear_error() -> None:
    models, number, until = contents(), 0, time.monotonic() + SECONDS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while time.monotonic() < until or number < LEAST:
            kind, detail = judged(number, 0, models)
            if kind == RAW:
                pytest.fail(f"mutant {number} of seed 0: {detail}")
            number += 1


def test_a_mutant_depends_on_its_number_alone() -> None:
    models = contents()
    first, second = ([mutated(models, Random(f"0 {n}")) for n in range(30)] for _ in range(2))
    assert first == second
    assert len(set(first)) > 25
