"""Stragglers in synthetic jobs: named soon, with their cause; none in even jobs, whatever the noise."""

# SPDX-License-Identifier: Apache-2.0
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from argosy.engine.metrics.job_directory import Record
from argosy.engine.metrics.stragglers import StragglerDetector
from tests.engine.metrics.synthetic import Job, Noise

QUIET = Noise(sigma=0.01, drift=0.005, tails=0.01, burst_every=1_000)
NOISES = {
    "quiet": QUIET,
    "usual": Noise(),
    "noisy": Noise(sigma=0.05, tails=0.1, burst_every=80),
    "lengths": Noise(sigma=0.03, batches=0.5),
}


def stragglers(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["kind"] == "straggler"]


def slow(rank: int, begin: int, end: int = 10**9, **parts: float) -> Callable[[int, int], dict[str, float]]:
    return lambda r, step: parts if r == rank and begin <= step < end else {}


def detect(job: Job, steps: int) -> list[dict[str, Any]]:
    return StragglerDetector().update(job.records(steps))


def delays(job: Callable[[int], Job], begin: int, seeds: range, victim: int, steps: int = 100) -> list[int]:
    """After how many steps the slow rank is named, by seed, sorted; no other rank is."""
    num_steps = []
    for seed in seeds:
        events = stragglers(detect(job(seed), begin + steps))
        assert [event["rank"] for event in events[:1]] == [victim], (seed, events)
        num_steps.append(events[0]["step"] - begin)
    return sorted(num_steps)


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_a_rank_that_is_ten_percent_slower_is_named_within_20_steps(ranks: int) -> None:
    victim = ranks - 1
    num_steps = delays(
        lambda seed: Job(ranks, seed, QUIET, slow=slow(victim, 70, busy=0.1)), 70, range(20), victim
    )
    assert num_steps[17] <= 20  # nine of ten; in the others a burst of other processes comes between
    assert num_steps[-1] <= 40


def test_64_ranks_have_one_straggler() -> None:
    num_steps = delays(lambda seed: Job(64, seed, QUIET, slow=slow(40, 40, busy=0.1)), 40, range(1), 40)
    assert num_steps[0] <= 20


def test_a_straggler_from_the_start_is_named_after_the_warm_up() -> None:
    events = stragglers(detect(Job(2, 3, QUIET, slow=slow(1, 0, busy=0.1)), 60))
    assert [event["rank"] for event in events] == [1]
    assert events[0]["step"] <= 30


@pytest.mark.parametrize("noise", NOISES)
def test_an_even_job_has_no_straggler(noise: str) -> None:
    for seed in range(4):
        assert detect(Job(2 + seed % 3, seed, NOISES[noise]), 1000) == [], seed


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("ranks", [2, 4])
def test_even_jobs_of_many_seeds_have_no_straggler(noise: str, ranks: int) -> None:
    alarms = {seed: events for seed in range(50) if (events := detect(Job(ranks, seed, NOISES[noise]), 1000))}
    assert not alarms


@pytest.mark.slow
def test_ten_percent_are_found_in_the_usual_noise_of_many_seeds() -> None:
    job = lambda seed: Job(2, 1000 + seed, slow=slow(1, 70, busy=0.1))  # noqa: E731
    num_steps = delays(job, 70, range(100), 1, steps=260)
    assert num_steps[50] <= 17
    assert num_steps[80] <= 22
    assert num_steps[95] <= 100


def moving_load(seed: int, mean: float) -> Callable[[int, int], dict[str, float]]:
    """Another process that is on the core of one rank, then of another, for exponentially distributed times."""
    chance, places = random.Random(seed), list[int]()
    while len(places) < 1000:
        places += [chance.choice([-1, 0, 1])] * (1 + int(chance.expovariate(1 / mean)))
    return lambda rank, step: {"busy": 0.8} if places[step] == rank else {}


def disturbed(seed: int, slowed: Callable[[int, int], dict[str, float]]) -> Job:
    delay = lambda rank, step: {"delay_s": 0.2 if slowed(rank, step - 1) else 0.0}  # noqa: E731
    return Job(2, seed, slow=slowed, fields=delay)


@pytest.mark.parametrize("mean", [5, 20])
def test_load_that_moves_over_the_ranks_is_no_straggler(mean: float) -> None:
    for seed in range(4):
        assert detect(disturbed(seed, moving_load(seed, mean)), 1000) == [], seed


def test_load_that_stays_with_one_rank_of_a_calm_job_is_a_straggler() -> None:
    job = Job(
        2,
        3,
        QUIET,
        slow=slow(1, 70, busy=1.5),
        fields=lambda r, step: {"delay_s": 0.3} if r and step >= 70 else {},
    )
    (event,) = stragglers(detect(job, 120))
    assert (event["rank"], event["because"]) == (1, "load")
    assert event["step"] <= 70 + 20


def test_a_command_of_two_seconds_is_no_straggler() -> None:
    job = Job(
        2,
        3,
        QUIET,
        own_ms=40.0,
        slow=slow(1, 70, 100, busy=0.5),
        fields=lambda r, step: {"delay_s": 0.1} if r and 70 <= step < 100 else {},
    )
    assert detect(job, 300) == []


def test_two_even_ranks_of_a_slow_host_are_both_named() -> None:
    both = lambda rank, step: {"busy": 0.2} if rank >= 2 and step >= 50 else {}  # noqa: E731
    events = stragglers(detect(Job(4, 5, QUIET, slow=both), 120))
    assert sorted(event["rank"] for event in events) == [2, 3]


def test_a_straggler_recovers_once() -> None:
    events = detect(Job(2, 7, QUIET, slow=slow(0, 60, 160, busy=0.3)), 400)
    assert [(event["kind"], event["rank"]) for event in events] == [
        ("straggler", 0),
        ("straggler_recovered", 0),
    ]
    assert 160 < events[1]["step"] <= 200


def test_a_small_excess_of_a_job_that_communicates_most_of_the_time_is_not_reported() -> None:
    job = Job(2, 1, QUIET, own_ms=10.0, collective_ms=200.0, slow=slow(1, 60, busy=0.12))
    assert detect(job, 300) == []


def test_records_of_many_short_steps_are_compared_by_their_groups() -> None:
    job = Job(2, 2, QUIET, own_ms=4.0, collective_ms=1.0, group=4, slow=slow(1, 2000, busy=0.1))
    events = stragglers(detect(job, 2600))
    assert [event["rank"] for event in events] == [1]
    assert events[0]["step"] - 2000 <= 200


def test_a_restarted_rank_begins_anew() -> None:
    first = list(Job(2, 1, QUIET).records(100))
    again = [Record(r.process, r.kind, r.time + 1000, r.fields) for r in Job(2, 2, QUIET).records(100)]
    assert StragglerDetector().update([*first, *again]) == []


def test_a_rank_that_has_ended_is_not_waited_for() -> None:
    records = list(Job(3, 1, QUIET, slow=slow(1, 100, busy=0.2)).records(200))
    end = next(r.time for r in records if r.process == "rank2" and r.get("step", 0) > 60)
    earlier = [r for r in records if r.process != "rank2" or r.time < end]
    earlier.append(Record("rank2", "end", end, {"outcome": "done"}))
    events = stragglers(StragglerDetector().update(sorted(earlier, key=lambda r: r.time)))
    assert [event["rank"] for event in events] == [1]


def test_a_job_of_one_rank_has_no_straggler() -> None:
    assert detect(Job(1, 1), 200) == []


# --- asynchronous workers -----------------------------------------------------------------------------


def test_even_asynchronous_workers_have_no_straggler() -> None:
    for seed in range(4):
        assert detect(Job(2 + seed % 3, seed, is_async=True), 1000) == [], seed


def test_an_asynchronous_worker_is_compared_by_its_period() -> None:
    events = stragglers(detect(Job(3, 1, QUIET, is_async=True, slow=slow(2, 50, exposed=0.3)), 300))
    assert [(event["rank"], event["cause"], event["role"]) for event in events] == [(2, "link", "worker")]


# --- causes -------------------------------------------------------------------------------------------


def cause(slow_parts: dict[str, float], **fields: Any) -> dict[str, Any]:
    job = Job(
        2, 4, QUIET, slow=slow(1, 60, **slow_parts), fields=lambda rank, step: fields if rank == 1 else {}
    )
    (event,) = stragglers(detect(job, 150))
    assert event["rank"] == 1
    return event


def test_a_slow_reader_is_an_input_problem() -> None:
    event = cause({"input": 0.3})
    assert event["cause"] == "input"
    assert "num_workers" in event["text"]


def test_time_between_steps_is_the_scripts() -> None:
    assert cause({"outside": 0.3})["cause"] == "script"


def test_computation_is_explained_by_other_load() -> None:
    event = cause({"busy": 0.5}, delay_s=0.25)
    assert (event["cause"], event["because"]) == ("computation", "load")
    assert "ms per step for one" in event["text"]


def test_uneven_load_of_a_host_that_is_overloaded_for_all_ranks_needs_longer() -> None:
    delays = {0: {"delay_s": 0.06}, 1: {"delay_s": 0.15}}  # of half a second
    job = Job(2, 4, QUIET, slow=slow(1, 60, busy=0.2), fields=lambda rank, step: delays[rank])
    events = stragglers(detect(job, 200))
    assert [(event["rank"], event["because"]) for event in events] == [(1, "load")]
    assert events[0]["step"] >= 60 + 40


def test_computation_is_explained_by_page_faults() -> None:
    assert cause({"busy": 0.3}, major_faults=3000)["because"] == "page_faults"


def test_computation_is_explained_by_the_frequency() -> None:
    job = Job(
        2, 4, QUIET, slow=slow(1, 60, busy=0.3), fields=lambda rank, step: {"mhz": 2000 if rank else 3000}
    )
    (event,) = stragglers(detect(job, 150))
    assert event["because"] == "frequency"
    assert "2000 MHz" in event["text"]


def test_computation_is_explained_by_larger_batches() -> None:
    assert cause({"busy": 0.5}, examples=400)["because"] == "batch"


def test_unexplained_computation_says_so() -> None:
    event = cause({"busy": 0.3})
    assert (event["cause"], event["because"]) == ("computation", "")
    assert "neither load, page faults nor frequency" in event["text"]
