"""Autotune: a running job verifies settings by interleaved steps, and switches between steps to what is faster.

    minimize ──▶ attach ──▶ program.alternatives
    Executor.run(program) ──▶ begin: the program of this step's setting ──▶ end: its time
        after a block of steps: the ranks gather its times ──▶ Tuner, the same on all ranks ──▶ the next block
        plan: rank 0 predicts all settings (proposals.py), and the others get its proposals

All programs are built from one template, so they have the same variables, and nothing is restarted. Before the first
run of each, the ranks compare its collectives, as for any program.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from argosy.distributed.auto import choice_cache, job_topology
from argosy.distributed.auto.decision_log import FILE, DecisionLog
from argosy.distributed.auto.proposals import allowed_settings, proposals
from argosy.distributed.auto.sampler import StepSampler
from argosy.distributed.auto.setting import Setting
from argosy.distributed.auto.sketch import StepSketch
from argosy.distributed.auto.template import Template
from argosy.distributed.auto.tuner import SAMPLED, Decider, Proposal, Tuner, TunerLimits, TunerStep
from argosy.distributed.fleet.distributed_strategy import DistributedStrategy
from argosy.distributed.fleet.strategy_checks import is_reduce_mode
from argosy.engine import env
from argosy.engine.collective import World
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program
from argosy.engine.log import NOTICE, logger
from argosy.engine.planner.topology import Topology
from argosy.engine.runtime import timeline
from argosy.engine.runtime.run_record import run_record

_MAX_PAUSE_S = 1.0
"""A pause between two steps counts at most this long in the elapsed time."""


@dataclass(frozen=True)
class Job:
    """What autotune knows of its job."""

    world: World
    hosts: int
    allowed: tuple[Setting, ...]
    """The settings that it may try."""
    topology: Topology | None
    """From a file; None: the ranks measure it."""
    cache_file: Path | None
    cache_key: str = ""

    @property
    def ranks_of_host(self) -> int:
        return self.world.size // self.hosts


class Autotune:
    """The alternatives of one program; see the module's picture."""

    max_programs = 4
    """Programs of other settings than the first whose compiled steps and buffers are kept."""

    def __init__(
        self, template: Template, program: Program, job: Job, tuner: Decider, log: DecisionLog
    ) -> None:
        self.template, self.job, self.tuner = template, job, tuner
        self._programs: dict[Setting, Program] = {}
        """Built for other settings than the first, the last used one last."""
        self._first, self._version = tuner.setting, program.version
        self._log = log
        self._block: Sequence[TunerStep] = ()
        self._times: list[float] = []
        self._began = self._ended = 0.0
        self._elapsed_s = self._overhead_s = 0.0
        self._sampler = StepSampler() if job.world.rank == 0 else None
        self._topology = job.topology
        self._num_plans = self._num_cached = 0
        self._is_off = False
        merged = template.strategy.merged_steps()
        self._period = merged[0] if merged else 1

    @property
    def active(self) -> Setting:
        """The setting of the next step, or of the one that runs."""
        if self._is_off or not self._block:
            return self._first if self._is_off else self.tuner.setting
        return self._block[min(len(self._times), len(self._block) - 1)].setting

    # --- what the executor calls --------------------------------------------------------------------------

    def begin(self, program: Program) -> Program:
        """The program of this step."""
        if program.version != self._version and not self._is_off:
            self._is_off = True
            logger.warning(
                "autotune: %s was changed after minimize; it is trained with the setting of its minimize, %s",
                *(program.name, self._first.text()),
            )
        if self._is_off:
            return program
        if len(self._times) == len(self._block):
            self._next_block()
        chosen = self._program_of(self._block[len(self._times)].setting, program)
        sampled = SAMPLED * self._period
        is_sampled = self.tuner.wants_samples and len(self._times) >= len(self._block) - sampled
        if is_sampled and self._sampler is not None and not timeline.is_attached():
            timeline.attach(self._sampler)
        self._began = time.perf_counter()
        return chosen

    def end(self, runs: int) -> None:
        """The step is done."""
        if self._is_off:
            return
        now = time.perf_counter()
        if self._sampler is not None:
            timeline.detach(self._sampler)
        outside_s = min(self._began - self._ended, _MAX_PAUSE_S) if self._ended else 0.0
        self._elapsed_s += outside_s + now - self._began
        self._ended = now
        ms = (now - self._began) * 1e3
        self._times.append(ms if runs > 1 else -ms)

    def cancel(self) -> None:
        """The step has raised: it does not count."""
        if self._sampler is not None:
            timeline.detach(self._sampler)

    def state(self) -> dict[str, Any]:
        """The setting that a resumed job continues with."""
        return {"setting": asdict(self.tuner.setting)}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue with the setting of a checkpoint."""
        setting = choice_cache.setting_of(state.get("setting"))
        if setting is None or not setting.has_state_of(self._first):
            logger.warning("autotune: the setting of the checkpoint does not fit this job, and is not used")
            return
        self._block, self._times = (), []
        self.tuner.restore(setting)
        self._write_log()

    # --- blocks -------------------------------------------------------------------------------------------

    def _next_block(self) -> None:
        began = time.perf_counter()
        planned_s = 0.0
        if self._block:
            times, elapsed_s, overhead_s = self._gathered()
            if self.tuner.finish(times, elapsed_s, overhead_s):
                planned_s = self._plan()
        self._store_choice()
        self._write_log()
        self._block, self._times = self.tuner.next_block(), []
        self._overhead_s = time.perf_counter() - began - planned_s

    def _gathered(self) -> tuple[list[float], float, float]:
        """The mean step times of all ranks, the elapsed seconds of rank 0, and the longest time of a gather."""
        values = torch.tensor([*self._times, self._elapsed_s, self._overhead_s], dtype=torch.float64)
        group = self.job.world.group("util")
        gathered = torch.stack(group.all_gather(values, "autotune: times of steps"))
        times = gathered[:, :-2].abs().mean(dim=0)
        is_first = (gathered[:, :-2] < 0).any(dim=0)
        times = torch.where(is_first, -times, times)
        return times.tolist(), float(gathered[0, -2]), float(gathered[:, -1].max())

    def _program_of(self, setting: Setting, program: Program) -> Program:
        if setting == self._first:
            return program
        found = self._programs.pop(setting, None)
        if found is None:
            world = self.job.world
            found = self.template.build(setting, world.size, self.job.hosts, world.rank)
            found.alternative_of = program
            run_record(found).logged_notices = run_record(program).logged_notices
            while len(self._programs) >= self.max_programs:
                del self._programs[next(iter(self._programs))]
        self._programs[setting] = found
        return found

    # --- plans --------------------------------------------------------------------------------------------

    def _plan(self) -> float:
        """Give the tuner what to try next: rank 0 proposes. Returns the seconds of rank 0."""
        began = time.perf_counter()
        self._num_plans += 1
        if self._topology is None or self._num_plans > 1:  # a link may have changed since
            base = self._topology or job_topology.plain(self.job.hosts, self.job.ranks_of_host)
            self._topology = job_topology.measured(base, self.job.world)
        message = ""
        if self.job.world.rank == 0:
            found, reason = self._proposals(self._topology)
            took_s = time.perf_counter() - began
            message = json.dumps([[[asdict(p.setting), *_figures(p)] for p in found], reason, took_s])
        gathered = self.job.world.group("util").all_gather_bytes(message.encode(), "autotune: proposals")
        data, reason, took_s = json.loads(gathered[0])
        self.tuner.propose([Proposal(Setting(**values), *rest) for values, *rest in data], reason, took_s)
        return time.perf_counter() - began

    def _proposals(self, topology: Topology) -> tuple[list[Proposal], str]:
        assert self._sampler is not None, "rank 0"
        nodes = self._sampler.nodes()
        if not nodes:
            return [], "no step could be sampled, because a timeline is being recorded"
        try:
            sketch = StepSketch.of(nodes, self._sampler.outside_ms(), self.template, self.job.ranks_of_host)
            found, now_ms = proposals(sketch, self.job.allowed, self.tuner.setting, topology)
        except ConfigError as e:  # the other ranks wait for the proposals
            return [], f"nothing is proposed: {e}"
        return found, (
            f"{len(found)} of {len(self.job.allowed) - 1} settings are worth a trial; the current one is predicted to "
            f"take {now_ms:.2f} ms and takes {self.tuner.reference_ms:.2f} ms; {_link_text(topology)}"
        )

    # --- what is written ----------------------------------------------------------------------------------

    def _store_choice(self) -> None:
        """On rank 0: store the setting after each trial, for the next job."""
        verified = [d for d in self.tuner.decisions if d.kind in ("switch", "keep")]
        if self._sampler is None or self.job.cache_file is None or len(verified) == self._num_cached:
            return
        self._num_cached = len(verified)
        gbit_per_s = link_of(self._topology) if self._topology is not None else 0.0
        choice_cache.add(
            self.job.cache_file, self.job.cache_key, gbit_per_s, self.tuner.setting, self.tuner.reference_ms
        )

    def _write_log(self) -> None:
        if self._sampler is None:
            return
        facts = {
            "program": self.template.program.name,
            "ranks": self.job.world.size,
            "hosts": self.job.hosts,
            "link": _link_text(self._topology) if self._topology is not None else "",
            "setting": asdict(self.tuner.setting),
            "lines": self.tuner.setting.lines(self.template.setting),
            "spent_s": self.tuner.spent_s,
            "elapsed_s": self.tuner.elapsed_s,
        }
        self._log.update(self.tuner.decisions, facts)


def _figures(proposal: Proposal) -> tuple[float, int, int]:
    return proposal.predicted_ms, proposal.run, proposal.skipped


def link_of(topology: Topology) -> float:
    """Gbit/s between hosts; 0 on one host."""
    return topology.links[topology.hosts[0].link].gbit_per_s if topology.num_hosts > 1 else 0.0


def _link_text(topology: Topology) -> str:
    if topology.num_hosts > 1:
        link = topology.links[topology.hosts[0].link]
        return f"link of {link.gbit_per_s:.3g} Gbit/s, {link.latency_us:.0f} us"
    memory = topology.shared_memory
    return f"shared memory of {memory.gb_per_s:.3g} GB/s" if memory else "no shared memory"


# --- minimize -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Start:
    """What `minimize` begins with."""

    setting: Setting
    reason: str
    job: Job


def begin(template: Template, world: World, hosts: int) -> Start | None:
    """The setting to start with; None if there is nothing to tune. All ranks call it together."""
    strategy, given = template.strategy, template.setting
    part = strategy.part("auto_configs")
    if world.size == 1:
        logger.log(NOTICE, "autotune: the job has one rank and no collectives; nothing is tuned")
        return None
    if world.size % hosts:
        raise ConfigError(
            f"strategy.auto: {world.size} ranks do not divide over {hosts} hosts; start as many on each"
        )
    if is_reduce_mode(strategy, world.size):
        raise ConfigError(
            "fleetrun --autotune and build_strategy.reduce_strategy = Reduce are both on; autotune chooses how "
            "gradients are all-reduced: use ReduceStrategy.AllReduce, the default"
        )
    allowed = allowed_settings(given, world.size, hosts, part.changes_numerics, part.bit_equal)
    if len(allowed) < 2:
        logger.log(NOTICE, "autotune: no setting but %s may be tried; nothing is tuned", given.text())
        return None
    topology = job_topology.of_rank_0(hosts, part.hosts, world)
    file = choice_cache.cache_file() if part.cache else None
    key = choice_cache.fingerprint(template, hosts, world.size) if file else ""
    job = Job(world, hosts, tuple(allowed), topology, file, key)
    cached = _cached(job) if file else None
    if cached is not None and cached in allowed:
        return Start(cached, f"the choice of an earlier job in {file}", job)
    return Start(given, "that of the strategy", job)


def _cached(job: Job) -> Setting | None:
    """The cached choice of rank 0's machine, for this link."""
    world, file = job.world, job.cache_file
    assert file is not None, "checked by the caller"
    util = world.group("util")
    known = util.all_gather_bytes(str(int(choice_cache.has(file, job.cache_key))).encode(), "autotune: cache")
    if known[0] != b"1":
        return None
    topology = job.topology or job_topology.plain(job.hosts, job.ranks_of_host)
    if job.topology is None and job.hosts > 1:
        topology = job_topology.measured(topology, world)
    found = choice_cache.find(file, job.cache_key, link_of(topology))
    message = json.dumps(None if found is None else asdict(found)).encode()
    return choice_cache.setting_of(json.loads(util.all_gather_bytes(message, "autotune: cache")[0]))


def attach(start: Start, template: Template, program: Program) -> Autotune:
    """Tune the program, which was built with the setting of `start`."""
    part = template.strategy.part("auto_configs")
    merged = template.strategy.merged_steps()
    limits = TunerLimits(part.budget, part.samples, part.min_gain, run=merged[0] if merged else 1)
    folder = env.metrics_dir()
    log = DecisionLog(folder / FILE if folder is not None else None)
    tuner = Tuner(start.setting, limits, start.reason)
    program.alternatives = autotune = Autotune(template, program, start.job, tuner, log)
    return autotune


def reject_servers(strategy: DistributedStrategy) -> None:
    """Raise ConfigError if `fleetrun --autotune` has started a job with parameter servers."""
    if is_requested(strategy):
        raise ConfigError(
            "fleetrun --autotune is for collective training, and this job has parameter servers; leave it out"
        )


def is_requested(strategy: DistributedStrategy) -> bool:
    """Whether the strategy or `fleetrun --autotune` asks for it."""
    return bool(strategy.auto) or env.flag("ARGOSY_AUTOTUNE")
