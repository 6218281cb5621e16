"""Staleness: the updates between a trainer's pull and its push."""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine.ps.server.staleness import Staleness


def test_counts_the_updates_since_the_pull() -> None:
    staleness = Staleness()
    staleness.note_pull(0, ["w", "b"])
    for _ in range(2):
        staleness.note_pull(1, ["w"])
        staleness.note_push(1, ["w"])
    staleness.note_push(0, ["w", "b"])
    assert staleness.take() == {"mean": round(2 / 3, 3), "max": 2}
    assert staleness.take() is None


def test_a_second_push_is_based_on_the_same_pull() -> None:
    staleness = Staleness()
    staleness.note_pull(0, ["w"])
    staleness.note_push(0, ["w"])
    staleness.note_push(0, ["w"])
    assert staleness.take() == {"mean": 0.5, "max": 1}


def test_a_push_belongs_to_the_pull_before_the_prefetched_one() -> None:
    staleness = Staleness()
    staleness.note_pull(0, ["table"])  # batch 1
    for _ in range(3):
        staleness.note_pull(0, ["table"])  # the next batch
        staleness.note_push(0, ["table"])
    # Each prefetched batch is pulled before the update of the one before it.
    assert staleness.take() == {"mean": round(2 / 3, 3), "max": 1}


def test_a_trainer_with_initial_values_does_not_count() -> None:
    staleness = Staleness()
    staleness.note_push(0, ["w"])
    assert staleness.take() is None
