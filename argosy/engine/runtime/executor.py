"""Executor.run: check the feeds, run the compiled step, return the fetches.

no role       feeds ─▶ compiled step ─▶ fetches
TrainerRole   the same, connected to the parameter servers
ServerRole    serves until all trainers have left
WorkerStartup nothing while the worker is connected, else as without a role

A program with alternatives: in each training step one of them runs in its place.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from argosy.engine import env, process_effects
from argosy.engine.collective import compare_schedules, world
from argosy.engine.errors import ArgosyError, ArgumentTypeError, ConfigError, NanInfError, ProgramError
from argosy.engine.ir.alternatives import Alternatives
from argosy.engine.ir.build import Build
from argosy.engine.ir.check_shapes import confirm_shapes
from argosy.engine.ir.dtypes import dtype_name
from argosy.engine.ir.effects import is_collective
from argosy.engine.ir.fed_variables import with_fed_variables
from argosy.engine.ir.limits import check_fed_bytes, compile_fits
from argosy.engine.ir.periods import due_names
from argosy.engine.ir.program import Program, default_main_program
from argosy.engine.ir.roles import ServerRole, TrainerRole, WorkerStartup
from argosy.engine.ir.show import op_name
from argosy.engine.ir.symbols import Sizes
from argosy.engine.ir.variable import Variable
from argosy.engine.ir.verify import describe
from argosy.engine.kernels import unavailable
from argosy.engine.log import logger, warn_unknown_variables
from argosy.engine.ps.trainer.trainer import Trainer
from argosy.engine.runtime import remote, step_metrics, timeline, watched_fetches
from argosy.engine.runtime.codegen import Step
from argosy.engine.runtime.compile import CPU, Compiled, compile_program, read_state
from argosy.engine.runtime.dataset_training import Dataset, FetchHandler, FetchPrinter, run_dataset
from argosy.engine.runtime.feeding import FeedLike, fed_by_name, fed_sizes, fed_variables, feed_values
from argosy.engine.runtime.fetching import (
    as_lod_tensors,
    fetched_variables,
    fetches_updates,
    to_numpy,
    with_lengths,
)
from argosy.engine.runtime.flags import flag
from argosy.engine.runtime.malloc import retain_freed_memory
from argosy.engine.runtime.module_values import check_sources
from argosy.engine.runtime.peak_memory import MemoryReport
from argosy.engine.runtime.run_record import run_record
from argosy.engine.runtime.scope import Scope, global_scope
from argosy.engine.runtime.server_loop import serve

_MAX_CHECKED = 10_000
"""How many sets of sizes a compiled step remembers as checked."""


class Executor:
    """Runs programs; compiles a program once for each version, list of fetches and set of due periods.

    Threads may share one.
    """

    def __init__(self, place: Any = None) -> None:
        self.place = place
        self.device = CPU if place is None else place.device()
        self._compiled: weakref.WeakKeyDictionary[Program, dict[Any, Compiled]] = weakref.WeakKeyDictionary()
        self._last_run: weakref.WeakKeyDictionary[Program, tuple[Compiled, Sizes]] = (
            weakref.WeakKeyDictionary()
        )
        """The last completed run: the compiled step and the sizes of the feeds."""
        self._generators: weakref.WeakKeyDictionary[Program, torch.Tensor] = weakref.WeakKeyDictionary()
        self._for_inference: weakref.WeakKeyDictionary[Program, tuple[int, Program]] = (
            weakref.WeakKeyDictionary()
        )
        self._with_feeds: weakref.WeakKeyDictionary[Program, dict[tuple[int, tuple[str, ...]], Program]] = (
            weakref.WeakKeyDictionary()
        )
        self._chosen: weakref.WeakKeyDictionary[Program, Program] = weakref.WeakKeyDictionary()
        """By program: the alternative that ran last."""
        self._lock = threading.RLock()
        timeline.start_if_asked()
        warn_unknown_variables()

    def run(
        self,
        program: Program | None = None,
        feed: FeedLike = None,
        fetch_list: Sequence[Variable | str] | Variable | str | None = None,
        feed_var_name: str = "feed",
        fetch_var_name: str = "fetch",
        scope: Scope | None = None,
        return_numpy: bool = True,
        use_program_cache: bool = True,
        return_merged: bool = True,
        use_prune: bool = False,
    ) -> list[Any]:
        """Run once. Returns the fetched values, as NumPy arrays or (`return_numpy=False`) torch tensors.

        `feed`: a dict by name, or a list of such dicts, which are concatenated along the first dimension. A variable
        that the program computes may be fed, too: then it is not computed. A ragged value is fed, and with
        `return_numpy=False` fetched, as a LoDTensor.
        `fetch_list`: Variables or names. Nodes that neither a fetch nor an update depends on do not run.
        `use_prune`: skip the updates too, so that nothing is trained, unless `fetch_list` has what minimize returned.
        The other arguments exist for Paddle's scripts; compiled programs are always cached.
        """
        build = getattr(program, "build", None)  # a CompiledProgram has its own
        program = _program(program)
        scope = scope or global_scope()
        match program.role:
            case ServerRole() as role:
                serve(program, role, scope)
                return []
            case TrainerRole() as role:
                connected: Trainer | None = remote.begin(program, role, scope)
            case WorkerStartup() if remote.has_started(program, scope):
                return []
            case _:
                connected = None
        check_sources(program)
        program = self._with_fed_variables(program, fed_variables(program, feed))
        wanted = fetched_variables(program, fetch_list)
        fetches = with_lengths(wanted, return_numpy)
        use_prune = use_prune and not fetches_updates(fetch_list)
        fed = fed_by_name(program, feed)
        build = build or program.build
        alternatives = program.alternatives if build is program.build and not use_prune else None
        if alternatives is None:
            out, compiled = self._step(program, fetches, fed, scope, use_prune, build)
        else:
            out, compiled = self._step_of(alternatives, program, fetches, fed, scope)
        with self._lock:
            remote.step_schedulers(program, connected)
        fetched: list[Any] = [v.clone() if c else v for v, c in zip(out, compiled.copied, strict=False)]
        fetched = [to_numpy(v) for v in fetched] if return_numpy else as_lod_tensors(wanted, fetched)
        if compiled.trains:
            watched_fetches.log(wanted, fetched)
        return fetched

    def _step_of(
        self,
        alternatives: Alternatives,
        program: Program,
        fetches: list[Variable],
        fed: Mapping[str, Any],
        scope: Scope,
    ) -> tuple[tuple[Any, ...], Compiled]:
        """Run the alternative that is chosen for this step."""
        chosen = alternatives.begin(program)
        wanted = [chosen.var(variable.name) for variable in fetches]
        if self._chosen.get(program) is not chosen:  # all ranks switch in the same step
            self._chosen[program] = chosen
            scope.host.reset()
        try:
            out, compiled = self._step(chosen, wanted, fed, scope, False, chosen.build)
        except BaseException:
            alternatives.cancel()
            raise
        alternatives.end(compiled.runs)
        return out, compiled

    def _step(
        self,
        program: Program,
        fetches: list[Variable],
        fed: Mapping[str, Any],
        scope: Scope,
        use_prune: bool,
        build: Build,
    ) -> tuple[tuple[Any, ...], Compiled]:
        """Compile if needed, run, and measure; the values of the fetches, and the compiled step."""
        sizes = fed_sizes(program, fed) if build.recompute is not None else {}  # it plans for the first batch
        compiled = self._compile(program, fetches, use_prune, build, _due(program, scope), sizes)
        recorded = timeline.begin(compiled, program.name)
        measured = step_metrics.begin(compiled, is_recorded=recorded is not None)
        is_timed = recorded is not None or (measured is not None and measured.samples is not None)
        try:
            out = self._run_compiled(program, compiled, fed, scope, is_timed)
        except BaseException:
            if measured is not None:
                step_metrics.cancel(measured)
            raise
        for name, value in zip(compiled.initialized, out[len(fetches) :], strict=True):
            scope.put(name, value, is_owned=True)
        if recorded is not None:
            timeline.end(recorded)
        if measured is not None:
            step_metrics.end(measured, compiled, program.name, fed, lambda: self.memory_report(program))
        return out, compiled

    def _run_compiled(
        self, program: Program, compiled: Compiled, fed: Mapping[str, Any], scope: Scope, is_timed: bool
    ) -> tuple[Any, ...]:
        """Run a compiled step once: its fetches, then the values of the variables that it initializes."""
        values, sizes = feed_values(program, compiled, fed)
        self._check_sizes(program, compiled, sizes)
        if self.device != CPU:
            values = [v.to(self.device, non_blocking=True) for v in values]
        if compiled.runs == 0:
            compiled.check_states(scope)
            _compare_schedules(program, compiled)
        with self._lock:
            states = compiled.state_values(scope)
        compiled.await_gathers(states)
        if compiled.runs == 1:
            retain_freed_memory()
        _write_rates(program, scope)
        step = compiled.timed.step if is_timed else compiled.step
        # Parameter servers may write weights in a thread of the trainer.
        try:
            with compiled.copies_for(scope, states, is_written_elsewhere=program.role is not None) as copies:
                if compiled.host is not None:
                    compiled.host.prepare(scope)
                out = self._call(program, compiled, step, [*values, *states, *copies])
        except BaseException:
            if compiled.host is not None:
                compiled.host.fail(scope)
            raise
        if compiled.host is not None:
            with self._lock:
                compiled.host.finish(scope)
        compiled.await_exposed(scope)
        self._record_run(program, compiled, sizes)
        if compiled.schedule and not compiled.initialized:
            world().count_step()
        return out

    def _record_run(self, program: Program, compiled: Compiled, sizes: Sizes) -> None:
        with self._lock:
            compiled.runs += 1
            is_first = compiled.runs == 1
            self._last_run[_original(program)] = self._last_run[program] = (compiled, sizes)
        if is_first and compiled.trains and logger.isEnabledFor(logging.INFO):
            logger.info("%s", self.memory_report(program).line())

    def train_from_dataset(
        self,
        program: Program | None = None,
        dataset: Dataset | None = None,
        scope: Scope | None = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Sequence[Variable | str] | Variable | str | None = None,
        fetch_info: Sequence[str] | str | None = None,
        print_period: int = 100,
        fetch_handler: FetchHandler | None = None,
    ) -> None:
        """Run the program on every batch of a dataset, in `thread` threads that share the scope.

        `thread=0`: as many as the dataset has readers. Every `print_period` batches `fetch_list` is printed,
        under the titles `fetch_info`; `debug` prints at the end where the time went.
        """
        printer = FetchPrinter.of(fetch_list, fetch_info, print_period)
        training, scope = program or default_main_program(), scope or global_scope()
        prefetch = remote.prefetch_of(_program(program))
        run_dataset(
            self, training, prefetch, dataset, scope, thread, debug, printer, fetch_handler, trains=True
        )

    def infer_from_dataset(
        self,
        program: Program | None = None,
        dataset: Dataset | None = None,
        scope: Scope | None = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Sequence[Variable | str] | Variable | str | None = None,
        fetch_info: Sequence[str] | str | None = None,
        print_period: int = 100,
        fetch_handler: FetchHandler | None = None,
    ) -> None:
        """`train_from_dataset` of the program for testing: no backward, no updates; metrics such as auc are updated."""
        printer = FetchPrinter.of(fetch_list, fetch_info, print_period)
        inference, scope = self._inference(_program(program)), scope or global_scope()
        prefetch = remote.prefetch_of(inference)
        run_dataset(
            self, inference, prefetch, dataset, scope, thread, debug, printer, fetch_handler, trains=False
        )

    def is_synchronous(self, program: Program | None = None) -> bool:
        """True if a run of the program has collectives, or waits for other workers on the servers."""
        build = getattr(program, "build", None)
        program = _program(program)
        if isinstance(program.role, TrainerRole) and program.role.plan.is_synchronous:
            return True
        every_period = frozenset(period.name for period in program.training.periods)
        return bool(self._compile(program, [], False, build or program.build, every_period).schedule)

    def memory_report(self, program: Program | None = None) -> MemoryReport:
        """The peak memory of the last run of a program: how much, at which node, and for which purpose."""
        program = _program(program)
        with self._lock:
            last = self._last_run.get(program)
        if last is None:
            raise ConfigError(
                f"{program.name!r} has not been run by this executor, so the sizes of its feeds are unknown; run it "
                "once before memory_report"
            )
        compiled, sizes = last
        return compiled.memory.report(program.name, sizes)

    def random_state(self, program: Program) -> torch.Tensor | None:
        """The generator state of a program with a seed; None before its first run."""
        return self._generators.get(program)

    def set_random_state(self, program: Program, state: torch.Tensor | None) -> None:
        """Set the generator state of a program with a seed; None: start from the seed."""
        self._generators.pop(program, None)
        if state is not None:
            self._generators[program] = state

    def close(self) -> None:
        """Clear the cache of compiled programs; a trainer disconnects from its parameter servers."""
        remote.leave()
        self._compiled.clear()
        self._for_inference.clear()
        self._with_feeds.clear()
        self._last_run.clear()
        self._chosen.clear()

    def _inference(self, program: Program) -> Program:
        """The program for testing, without backward, updates and sends; itself if it has none of them."""
        if all(node.meta["role"] == "forward" for node in program.graph.nodes):
            return program
        version, inference = self._for_inference.get(program, (-1, program))
        if version != program.version:
            inference = program.clone(for_test=True)
            self._for_inference[program] = (program.version, inference)
        return inference

    def _with_fed_variables(self, program: Program, names: tuple[str, ...]) -> Program:
        """The program that is fed these variables instead of computing them; itself without names."""
        if not names:
            return program
        with self._lock:
            key = (program.version, names)
            known = {k: p for k, p in self._with_feeds.get(program, {}).items() if k[0] == program.version}
            if key not in known:
                known[key] = with_fed_variables(program, names)
            self._with_feeds[program] = known
            return known[key]

    def _compile(
        self,
        program: Program,
        fetches: list[Variable],
        use_prune: bool,
        build: Build,
        due: frozenset[str],
        sizes: Sizes | None = None,
    ) -> Compiled:
        with self._lock:  # concurrent threads wait for the first to compile
            return self._compile_once(program, fetches, use_prune, build, due, sizes or {})

    def _compile_once(
        self,
        program: Program,
        fetches: list[Variable],
        use_prune: bool,
        build: Build,
        due: frozenset[str],
        sizes: Sizes,
    ) -> Compiled:
        checked = flag("FLAGS_check_nan_inf")
        key = (program.version, build, checked, use_prune, due, *(v.name for v in fetches))
        cache = self._compiled.setdefault(program, {})
        if key not in cache:
            check = _check_finite if checked else None
            if sizes:
                program.symbols.planned = sizes
            compiled = compile_program(program, fetches, check, self.device, not use_prune, build, due, sizes)
            # Drop older versions: versions only increase.
            cache = {k: c for k, c in cache.items() if k[0] == program.version}
            cache[(program.version, *key[1:])] = compiled
            self._compiled[program] = cache
            return compiled
        return cache[key]

    def _check_sizes(self, program: Program, compiled: Compiled, sizes: Sizes) -> None:
        """Raise FeedError if the program was not built for these sizes; checked once for each set of sizes."""
        if program.symbols.all_hold(sizes) and (
            program.recorder.has_history or (compiled.fits is not None and compiled.fits(sizes))
        ):
            return
        key = tuple(sizes.items())
        if key in compiled.checked_sizes:
            return
        with self._lock:
            if doubtful := program.symbols.check(sizes):
                confirm_shapes(compiled.recorded, program.symbols, doubtful, sizes)
            if not program.recorder.has_history:
                check_fed_bytes(compiled.recorded, program.symbols, sizes)
                compiled.fits = compiled.fits or compile_fits(compiled.recorded, program.symbols)
            if len(compiled.checked_sizes) >= _MAX_CHECKED:
                compiled.checked_sizes.clear()
            compiled.checked_sizes.add(key)

    def _call(
        self, program: Program, compiled: Compiled, step: Step, arguments: list[torch.Tensor]
    ) -> tuple[Any, ...]:
        num_started = world().num_started()
        try:
            if _original(program).random_seed and compiled.is_random:
                return self._seeded(program, compiled, step, arguments)
            with torch._C._AutoDispatchBelowAutograd(), world().buffers.owned_by(program):
                return step.function(*arguments)
        except BaseException as e:
            world().note_failed_step(num_started, e)
            is_foreign = isinstance(e, Exception) and not isinstance(e, ArgosyError)
            node = step.node_of(e) if is_foreign else None
            if node is None:
                raise
            raise ProgramError(f"{describe(node)} failed in {node.meta['role']}: {e}") from e

    def _seeded(
        self, program: Program, compiled: Compiled, step: Step, arguments: list[torch.Tensor]
    ) -> tuple[Any, ...]:
        """Run with the program's own random generator; a startup program restarts it from the seed at every run.

        Each rank has its own seed, so that dropout differs between ranks; initial values are the same on all ranks.
        """
        original = _original(program)
        with process_effects.during("random-state"), self._lock, torch.random.fork_rng(devices=[]):
            if original in self._generators and not compiled.initialized:
                torch.set_rng_state(self._generators[original])
            else:
                torch.manual_seed(original.random_seed + (0 if compiled.initialized else world().rank))
            with torch._C._AutoDispatchBelowAutograd(), world().buffers.owned_by(program):
                out = step.function(*arguments)
            self._generators[original] = torch.get_rng_state()
            return out


def _compare_schedules(program: Program, compiled: Compiled) -> None:
    """Compare the schedule of collectives with the other ranks, unless they have agreed on the same before.

    If a rank runs something else meanwhile, the waiting ranks report it.
    """
    if not compiled.schedule:
        # A variant without the nodes of a period may have no collectives where the program has some.
        if program.role is None and not any(map(is_collective, program.graph.nodes)):
            _warn_if_alone(program, compiled)
        return
    if world().size == 1 and compiled.trains:
        raise ProgramError(
            f"{program.name} was built for several ranks, and this process is the only one; start it with fleetrun and "
            "call fleet.init, or build the program again"
        )
    with world().lock:  # of concurrent threads the first compares, and the others wait for it
        agreed = run_record(program).schedules_of(program.version)
        if compiled.schedule not in agreed:
            compare_schedules(world(), compiled.schedule)
            if compiled.trains and compiled.may_fuse_updates:
                _compare_kernels()
            agreed.add(compiled.schedule)


def _compare_kernels() -> None:
    """Raise on every rank if some have Argosy's kernels and others have not: their updates would round differently."""
    if world().store is None:
        return
    what = f"kernels#{world().num_schedules} (comparing the available kernels before the first step)"
    reasons = world().all_gather_object(what, unavailable() or "")
    missing = [rank for rank, reason in enumerate(reasons) if reason]
    if missing and len(missing) < len(reasons):
        raise ConfigError(
            f"Argosy's C++ kernels are unavailable on rank {missing[0]} ({reasons[missing[0]]}), but available on rank "
            f"{reasons.index('')}: fused updates round differently, and the parameters of the ranks would drift apart; "
            "install a C++ compiler on all hosts, or set ARGOSY_KERNELS=0 for the whole job"
        )


def _warn_if_alone(program: Program, compiled: Compiled) -> None:
    """Warn if a job of several ranks trains without collectives: every rank would train a separate model."""
    _, size = env.rank_and_size()
    if size > 1 and compiled.trains:
        logger.warning(
            "%s trains on this rank alone: it has no collectives with the %d other ranks of the job; call fleet.init "
            "and minimize with fleet.distributed_optimizer(optimizer)",
            program.name,
            size - 1,
        )


def _program(program: Any) -> Program:
    if program is None:
        return default_main_program()
    program = getattr(program, "program", program) if not isinstance(program, Program) else program
    if not isinstance(program, Program):
        raise ArgumentTypeError(f"the executor was given a {type(program).__name__}; give a static.Program")
    return program


def _original(program: Program) -> Program:
    """The program that the user runs, in whose place this one may run."""
    return program.alternative_of or program


def _due(program: Program, scope: Scope) -> frozenset[str]:
    """The periods of the program that are due in this run."""
    periods = program.training.periods
    return due_names(periods, lambda name: int(read_state(scope, name).item())) if periods else frozenset()


def _write_rates(program: Program, scope: Scope) -> None:
    for name, scheduler in program.training.schedulers:
        rate = scope.peek(name)
        rate.fill_(float(scheduler()))


def _check_finite(node: fx.Node, value: Any) -> None:
    """Raise at the first node whose result holds a NaN or an infinity."""
    if op_name(node).startswith(("empty", "new_empty")):
        return  # uninitialised memory, which the next node fills
    for x in value if isinstance(value, tuple | list) else (value,):
        if isinstance(x, torch.Tensor) and x.is_floating_point() and not bool(torch.isfinite(x).all()):
            bad = "NaN" if bool(torch.isnan(x).any()) else "infinity"
            raise NanInfError(
                f"{describe(node)} made {int((~torch.isfinite(x)).sum())} values of {bad} in "
                f"{dtype_name(x.dtype)}{list(x.shape)} ({node.meta['role']}); it is the first node that did"
            )
