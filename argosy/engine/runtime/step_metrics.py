"""Measure the training steps of this process for the job directory, and sample where the time of a step goes.

    begin ──▶ run ──▶ end     every step: two clock reads, differences of the counters
    step 5, 20, 50, 100, and every 200th: the timed variant runs, which records when each node ran
        ──▶ a `sample` record: forward + backward + optimize + communicate + exposed + other = step
        ──▶ rank0.profile.json: nodes, collectives, memory

All ranks sample the same steps, so that they slow each other down only once.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from torch.utils.weak import WeakIdKeyDictionary

from argosy.engine import env
from argosy.engine.collective import trace
from argosy.engine.collective.trace import TracedCollective
from argosy.engine.data.lod_tensor import LoDTensor
from argosy.engine.errors import ConfigError
from argosy.engine.log import logger
from argosy.engine.metrics import counters, shared_memory
from argosy.engine.metrics.job_directory import METRICS, REQUESTS, profile_file, read_json, write_json
from argosy.engine.metrics.metrics_recorder import MetricsRecorder, StepTimes, recorder
from argosy.engine.runtime import timeline
from argosy.engine.runtime.codegen import Span
from argosy.engine.runtime.compile import Compiled
from argosy.engine.runtime.peak_memory import MemoryReport

FIRST_SAMPLES = (5, 20, 50, 100)
SAMPLE_EVERY = 200
NUM_SAMPLES = 8
"""A profile has the medians of so many samples."""
ROLES = ("forward", "backward", "optimize", "communicate")


@dataclass(slots=True)
class MeasuredRun:
    """A training step that runs."""

    recorder: MetricsRecorder
    began_ns: int
    exposed_ns: int
    sent_bytes: int
    samples: list[TracedCollective] | None
    """Collectives of a sampled step; None: the step is not sampled."""


class StepMeter:
    """The state between the steps of this process."""

    def __init__(self) -> None:
        self.ended_ns = 0
        self.input_ns = counters.input_ns
        self.hits, self.misses = counters.prefetch_hits, counters.prefetch_misses
        self.profiles: WeakIdKeyDictionary = WeakIdKeyDictionary()
        """By compiled step, its StepProfile."""
        self.request = ""
        """The id of the last timeline that was requested."""
        self.requested_at = 0.0


_meter = StepMeter()


def begin(compiled: Compiled, is_recorded: bool) -> MeasuredRun | None:
    """Called by the executor before a run; None unless it is a training step whose measurements are written.

    `is_recorded`: a timeline records the step, so it is not sampled.
    """
    if not compiled.trains:
        return None
    records = recorder()
    if not records.is_on:
        return None
    samples: list[TracedCollective] | None = None
    if not is_recorded and records.path is not None and is_sampled(records.step + 1):
        samples, trace.summed = [], []
        trace.recording = samples
        compiled.timed.spans.clear()
    return MeasuredRun(records, time.perf_counter_ns(), counters.exposed_ns, counters.sent_bytes, samples)


def is_sampled(step: int) -> bool:
    """Whether the timed variant runs in this step, counted from 1."""
    return step in FIRST_SAMPLES or step % SAMPLE_EVERY == 0


def cancel(run: MeasuredRun) -> None:
    """Called if the run raised."""
    if run.samples is not None:
        trace.recording = trace.summed = None


def end(
    run: MeasuredRun,
    compiled: Compiled,
    program: str,
    fed: Mapping[str, Any],
    memory: Callable[[], MemoryReport],
) -> None:
    """Called after the run: count the step, write the sample."""
    now, meter, records = time.perf_counter_ns(), _meter, run.recorder
    exposed = min(counters.exposed_ns - run.exposed_ns, now - run.began_ns)
    outside = max(0, run.began_ns - meter.ended_ns) if meter.ended_ns else 0  # threads may overlap
    waited = min(counters.input_ns - meter.input_ns, outside)
    records.add_step(
        StepTimes(
            period=outside + now - run.began_ns,
            busy=now - run.began_ns - exposed,
            exposed=exposed,
            outside=outside,
            input=waited,
            examples=num_examples(fed),
            sent_bytes=counters.sent_bytes - run.sent_bytes,
            prefetch_hits=counters.prefetch_hits - meter.hits,
            prefetch_misses=counters.prefetch_misses - meter.misses,
        )
    )
    meter.ended_ns, meter.input_ns = now, counters.input_ns
    meter.hits, meter.misses = counters.prefetch_hits, counters.prefetch_misses
    if run.samples is not None:
        sums, trace.recording, trace.summed = trace.summed or [], None, None
        _write_sample(run, compiled, program, now, memory, sums)
    elif records.path is not None and now - meter.requested_at > 1e9:
        meter.requested_at = now
        _start_requested_timeline(records)


def num_examples(fed: Mapping[str, Any]) -> int:
    """The size of the first dimension of the feeds: rows, or the number of sequences."""
    for value in fed.values():
        if isinstance(value, LoDTensor):
            lengths = value.recursive_sequence_lengths()
            return len(lengths[0]) if lengths else len(value.rows)
        shape = getattr(value, "shape", None)
        if shape is not None:
            return int(shape[0]) if len(shape) else 1
        if isinstance(value, list | tuple):
            return len(value)
    return 0


# --- samples ------------------------------------------------------------------------------------------


@dataclass
class StepProfile:
    """The last samples of a compiled step."""

    node_ns: deque[list[int]]
    memory: MemoryReport


def _write_sample(
    run: MeasuredRun,
    compiled: Compiled,
    program: str,
    ended_ns: int,
    memory: Callable[[], MemoryReport],
    sums: list[TracedCollective],
) -> None:
    timed, records = compiled.timed, run.recorder
    spans, collectives = list(timed.spans), run.samples or []
    waits = sorted(interval for collective in collectives for interval in collective.waited)
    node_ns, exposed_ns = without_waits(spans, waits)
    roles = dict.fromkeys(ROLES, 0)
    for (place, _, _), took in zip(spans, node_ns, strict=True):
        role = timed.labels[place].role
        roles[role if role in roles else "optimize"] += took
    whole = ended_ns - run.began_ns
    # Requests to parameter servers block inside their nodes.
    blocked = min(max(0, counters.exposed_ns - run.exposed_ns - exposed_ns), roles["communicate"])
    roles["communicate"] -= blocked
    exposed_ns += blocked
    other = max(0, whole - exposed_ns - sum(roles.values()))
    times = {**roles, "exposed": exposed_ns, "other": other, "step": whole}
    records.write(
        "sample", step=records.step, **{f"{name}_ms": round(ns / 1e6, 3) for name, ns in times.items()}
    )
    profile = _meter.profiles.get(compiled)
    if profile is None:
        profile = _meter.profiles[compiled] = StepProfile(deque(maxlen=NUM_SAMPLES), memory())
    profile.node_ns.append(node_ns)
    _write_profile(records, compiled, program, profile, [*collectives, *sums])


def without_waits(spans: list[Span], waits: list[tuple[int, int]]) -> tuple[list[int], int]:
    """For each node its time without the waits inside it, and the sum of all waits; both are in order of time."""
    took = [end - begin for _, begin, end in spans]
    place, exposed = 0, 0
    for begin, end in waits:
        exposed += end - begin
        while place < len(spans) and spans[place][2] <= begin:
            place += 1
        if place < len(spans) and spans[place][1] <= begin:
            took[place] -= min(end, spans[place][2]) - begin
    return took, exposed


def _write_profile(
    records: MetricsRecorder,
    compiled: Compiled,
    program: str,
    profile: StepProfile,
    collectives: list[TracedCollective],
) -> None:
    medians = [median(column) for column in zip(*profile.node_ns, strict=True)]
    nodes = [
        {**asdict(compiled.timed.labels[place]), "ms": round(ns / 1e6, 4)}
        for (place, _, _), ns in zip(compiled.timed.spans, medians, strict=True)
    ]
    memory = asdict(profile.memory)
    content = {
        "step": records.step,
        "program": program,
        "nodes": nodes,
        "collectives": [_collective(collective) for collective in collectives],
        "memory": memory,
        "shared_memory": asdict(shared_memory.used()),
    }
    assert records.path is not None, "sampled"
    try:
        write_json(profile_file(records.path.parent.parent, records.process.rank), content)
    except OSError as e:
        logger.warning("cannot write the profile of step %d (%s)", records.step, e.strerror)


def _collective(traced: TracedCollective) -> dict[str, Any]:
    """A collective of the sampled step, from the clock of this rank."""
    ended = traced.ended_ns or (traced.waited[-1][1] if traced.waited else traced.started_ns)
    began = traced.began_ns or traced.started_ns
    return {
        "name": f"{traced.collective} {traced.what}".rstrip(),
        "group": traced.group,
        "bytes": traced.nbytes,
        "ms": round((ended - began) / 1e6, 4),
        "queue_ms": round((began - traced.started_ns) / 1e6, 4),
        "wait_ms": round(sum(end - begin for begin, end in traced.waited) / 1e6, 4),
    }


# --- requests of viewers ------------------------------------------------------------------------------


def _start_requested_timeline(records: MetricsRecorder) -> None:
    """Start the timeline that a viewer has requested in requests.json, once."""
    directory = env.metrics_dir()
    request = read_json(directory / METRICS / REQUESTS) if directory is not None else None
    wanted = (request or {}).get("timeline")
    if not isinstance(wanted, dict) or wanted.get("id") in (None, _meter.request):
        return
    _meter.request = str(wanted["id"])
    try:
        first = max(1, int(wanted["first_step"]) - records.step)
        timeline.start(Path(str(wanted["directory"])), (first, first + int(wanted["steps"]) - 1))
    except (ConfigError, KeyError, TypeError, ValueError) as e:
        logger.warning("the timeline that was requested is not recorded: %s", e)
