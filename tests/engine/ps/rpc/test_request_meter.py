"""Histograms of latencies: their buckets and quantiles."""

# SPDX-License-Identifier: Apache-2.0
import random

from argosy.engine.ps.rpc.request_meter import RequestMeter, bucket_of, upper_ns


def test_every_duration_is_in_the_bucket_that_ends_at_or_after_it_by_at_most_an_eighth() -> None:
    chance = random.Random(1)
    for ns in [*range(300), *(int(2 ** chance.uniform(8, 39)) for _ in range(2000))]:
        upper = upper_ns(bucket_of(ns))
        assert ns <= upper <= ns * 1.125 + 1, (ns, upper)
        assert bucket_of(upper) == bucket_of(ns)
        assert bucket_of(upper + 1) == bucket_of(ns) + 1


def test_longer_durations_than_the_last_bucket_are_in_the_last_one() -> None:
    assert bucket_of(1 << 60) == bucket_of(1 << 50)


def test_quantiles_are_those_of_the_requests_since_the_last_record() -> None:
    meter = RequestMeter()
    for i in range(1, 1001):
        meter.add("pull", i * 1e-6, 10)
    taken = meter.take()["pull"]
    assert (taken["count"], taken["bytes"]) == (1000, 10_000)
    for name, exact in (("p50_ms", 0.5), ("p90_ms", 0.9), ("p99_ms", 0.99)):
        assert exact <= taken[name] <= 1.125 * exact
    assert meter.take() == {}
    meter.add("pull", 0.002, 1)
    assert meter.take()["pull"]["p50_ms"] >= 2.0
