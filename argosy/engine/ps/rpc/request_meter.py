"""Counts, sizes and latencies of requests, in histograms of fixed size."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

_SUB_BITS = 3
_SUB = 1 << _SUB_BITS
"""Buckets per power of two: a quantile is at most 1/8 too large."""
_BUCKETS = 40 * _SUB
"""Up to 2^40 ns: 18 minutes."""
QUANTILES = (0.5, 0.9, 0.99)


def bucket_of(ns: int) -> int:
    """The bucket of a duration; `upper_ns` is its inverse."""
    if ns < _SUB:
        return max(ns, 0)
    shift = ns.bit_length() - 1 - _SUB_BITS
    return min((shift << _SUB_BITS) + (ns >> shift), _BUCKETS - 1)


def upper_ns(bucket: int) -> int:
    """The largest duration of a bucket."""
    if bucket < 2 * _SUB:
        return bucket
    shift = (bucket >> _SUB_BITS) - 1
    return (((bucket & (_SUB - 1)) + _SUB + 1) << shift) - 1


class KindMeter:
    """The requests of one kind since the last call of `take`. The server's lock guards it."""

    __slots__ = ("buckets", "bytes", "count", "cpu_ns")

    def __init__(self) -> None:
        self.count = self.bytes = self.cpu_ns = 0
        self.buckets = [0] * _BUCKETS

    def take(self) -> dict[str, Any]:
        """The fields of a record; begins to count again."""
        fields: dict[str, Any] = {"count": self.count, "bytes": self.bytes}
        fields |= {f"p{round(100 * q)}_ms": self._quantile_ms(q) for q in QUANTILES}
        fields["cpu_ms"] = round(self.cpu_ns / 1e6, 3)
        self.count = self.bytes = self.cpu_ns = 0
        self.buckets = [0] * _BUCKETS
        return fields

    def _quantile_ms(self, quantile: float) -> float:
        wanted, seen = quantile * self.count, 0
        for bucket, count in enumerate(self.buckets):
            seen += count
            if count and seen >= wanted:
                return round(upper_ns(bucket) / 1e6, 6)
        return 0.0


class RequestMeter:
    """The requests by kind."""

    def __init__(self) -> None:
        self._kinds: dict[str, KindMeter] = {}

    def add(self, kind: str, seconds: float, nbytes: int) -> None:
        """Count a request that was replied to after so long."""
        meter = self._of(kind)
        meter.count += 1
        meter.bytes += nbytes
        meter.buckets[bucket_of(int(seconds * 1e9))] += 1

    def add_cpu(self, kind: str, cpu_ns: int) -> None:
        """Count the processor time of a handler's thread; the last push or barrier of a sync step has its update."""
        self._of(kind).cpu_ns += cpu_ns

    def _of(self, kind: str) -> KindMeter:
        meter = self._kinds.get(kind)
        if meter is None:
            meter = self._kinds[kind] = KindMeter()
        return meter

    def take(self) -> dict[str, dict[str, Any]]:
        """By kind, the fields of a record, without kinds that had none; begins to count again."""
        return {kind: meter.take() for kind, meter in self._kinds.items() if meter.count}
