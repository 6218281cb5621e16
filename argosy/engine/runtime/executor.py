"""Executor.run: check the feeds, run the compiled step, return the fetches."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import fx

from argosy.engine import env
from argosy.engine.collective import compare_schedules, world
from argosy.engine.data.feed import converted, to_tensor
from argosy.engine.errors import (
    ArgosyError,
    ConfigError,
    DataError,
    FeedError,
    FetchError,
    NanInfError,
    ProgramError,
)
from argosy.engine.ir.check_shapes import confirm_shapes
from argosy.engine.ir.dtypes import dtype_name
from argosy.engine.ir.limits import check_fed_bytes
from argosy.engine.ir.program import Build, Program, default_main_program
from argosy.engine.ir.show import op_name
from argosy.engine.ir.symbols import Sizes
from argosy.engine.ir.variable import Variable
from argosy.engine.ir.verify import describe
from argosy.engine.log import logger, warn_unknown_variables
from argosy.engine.runtime import remote, timeline
from argosy.engine.runtime.codegen import Step
from argosy.engine.runtime.compile import CPU, Compiled, Feed, compile_program, feed_of
from argosy.engine.runtime.dataset_training import Dataset, FetchHandler, FetchPrinter, run_dataset
from argosy.engine.runtime.flags import flag
from argosy.engine.runtime.malloc import retain_freed_memory
from argosy.engine.runtime.module_values import check_sources
from argosy.engine.runtime.peak_memory import MemoryReport
from argosy.engine.runtime.scope import Scope, global_scope
from argosy.engine.runtime.server_loop import serve
from argosy.engine.suggest import nearest

FeedLike = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None


class OneElement(np.ndarray[Any, Any]):
    """A fetched array with one element, which also formats as a number: `"%.5f" % loss`.

    Paddle's losses have shape [1] and its scripts print them so; plain NumPy rejects that since 2.4.
    """

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        plain = np.asarray(array)
        return plain[()] if return_scalar else printable(plain)


class Executor:
    """Runs programs; compiles a program once for each version and list of fetches. Threads may share one."""

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

        `feed`: a dict by name, or a list of such dicts, which are concatenated along the first dimension.
        `fetch_list`: Variables or names. Nodes that neither a fetch nor an update depends on do not run.
        `use_prune`: skip the updates too, so that nothing is trained.
        The other arguments exist for Paddle's scripts; compiled programs are always cached.
        """
        build = getattr(program, "build", None)  # a CompiledProgram has its own
        program = _program(program)
        scope = scope or global_scope()
        if program.server_spec is not None:
            serve(program, scope)
            return []
        connected = remote.begin(program, scope) if program.remote is not None else None
        check_sources(program)
        fetches = _fetches(program, fetch_list)
        compiled = self._compile(program, fetches, use_prune, build or program.build)
        recorded = timeline.begin(compiled, program.name)
        values, sizes = _feed_values(program, compiled, feed)
        self._check_sizes(program, compiled, sizes)
        if self.device != CPU:
            values = [v.to(self.device, non_blocking=True) for v in values]
        with self._lock:
            states = compiled.state_values(scope)
        if compiled.runs == 1:
            retain_freed_memory()
        _write_rates(program, scope)
        if compiled.runs == 0:
            _compare_schedules(program, compiled)
        step = compiled.step if recorded is None else compiled.timed.step
        out = self._call(program, compiled, step, [*values, *states])
        self._record_run(program, compiled, sizes)
        if compiled.schedule and not compiled.initialized:
            world().count_step()
        for name, value in zip(compiled.initialized, out[len(fetches) :], strict=True):
            scope.put(name, value)
        with self._lock:
            remote.step_schedulers(program, connected)
        fetched: list[Any] = [v.clone() if c else v for v, c in zip(out, compiled.copied, strict=False)]
        fetched = [_to_numpy(v) for v in fetched] if return_numpy else fetched
        if recorded is not None:
            timeline.end(recorded)
        return fetched

    def _record_run(self, program: Program, compiled: Compiled, sizes: Sizes) -> None:
        with self._lock:
            compiled.runs += 1
            is_first = compiled.runs == 1
            self._last_run[program] = (compiled, sizes)
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
        training, prefetch = program or default_main_program(), _program(program).prefetch
        scope = scope or global_scope()
        run_dataset(self, training, prefetch, dataset, scope, thread, debug, printer, fetch_handler)

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
        run_dataset(
            self, inference, inference.prefetch, dataset, scope, thread, debug, printer, fetch_handler
        )

    def is_synchronous(self, program: Program | None = None) -> bool:
        """True if a run of the program has collectives, or waits for other workers on the servers."""
        build = getattr(program, "build", None)
        program = _program(program)
        if program.remote is not None and program.remote[0].is_synchronous:
            return True
        return bool(self._compile(program, [], False, build or program.build).schedule)

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
        self._last_run.clear()

    def _inference(self, program: Program) -> Program:
        """The program for testing, without backward, updates and sends; itself if it has none of them."""
        if all(node.meta["role"] == "forward" for node in program.graph.nodes):
            return program
        version, inference = self._for_inference.get(program, (-1, program))
        if version != program.version:
            inference = program.clone(for_test=True)
            self._for_inference[program] = (program.version, inference)
        return inference

    def _compile(self, program: Program, fetches: list[Variable], use_prune: bool, build: Build) -> Compiled:
        with self._lock:  # concurrent threads wait for the first to compile
            return self._compile_once(program, fetches, use_prune, build)

    def _compile_once(
        self, program: Program, fetches: list[Variable], use_prune: bool, build: Build
    ) -> Compiled:
        checked = flag("FLAGS_check_nan_inf")
        key = (program.version, build, checked, use_prune, *(v.name for v in fetches))
        cache = self._compiled.setdefault(program, {})
        if key not in cache:
            check = _check_finite if checked else None
            compiled = compile_program(program, fetches, check, self.device, not use_prune, build)
            # Drop older versions: versions only increase.
            cache = {k: c for k, c in cache.items() if k[0] == program.version}
            cache[(program.version, *key[1:])] = compiled
            self._compiled[program] = cache
            return compiled
        return cache[key]

    def _check_sizes(self, program: Program, compiled: Compiled, sizes: Sizes) -> None:
        """Raise FeedError if the program was not built for these sizes; checked once for each set of sizes."""
        key = tuple(sizes.items())
        if key in compiled.checked_sizes:
            return
        with self._lock:
            if doubtful := program.symbols.check(sizes):
                confirm_shapes(compiled.recorded, program.symbols, doubtful, sizes)
            if not program.has_history:
                check_fed_bytes(compiled.recorded, program.symbols, sizes)
            compiled.checked_sizes.add(key)

    def _call(
        self, program: Program, compiled: Compiled, step: Step, arguments: list[torch.Tensor]
    ) -> tuple[Any, ...]:
        num_started = world().num_started()
        try:
            if program.random_seed and compiled.is_random:
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
        with self._lock, torch.random.fork_rng(devices=[]):  # torch's generator is global in the process
            if program in self._generators and not compiled.initialized:
                torch.set_rng_state(self._generators[program])
            else:
                torch.manual_seed(program.random_seed + (0 if compiled.initialized else world().rank))
            with torch._C._AutoDispatchBelowAutograd(), world().buffers.owned_by(program):
                out = step.function(*arguments)
            self._generators[program] = torch.get_rng_state()
            return out


def _compare_schedules(program: Program, compiled: Compiled) -> None:
    """Compare the schedule of collectives with the other ranks, unless they have agreed on the same before.

    If a rank runs something else meanwhile, the waiting ranks report it.
    """
    if not compiled.schedule:
        if program.remote is None:
            _warn_if_alone(program, compiled)
        return
    if world().size == 1 and compiled.trains:
        raise ProgramError(
            f"{program.name} was built for several ranks, and this process is the only one; start it with fleetrun and "
            "call fleet.init, or build the program again"
        )
    with world().lock:  # of concurrent threads the first compares, and the others wait for it
        version, agreed = program.schedules
        if version != program.version:
            agreed = frozenset()
        if compiled.schedule not in agreed:
            compare_schedules(world(), compiled.schedule)
            program.schedules = (program.version, agreed | {compiled.schedule})


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
        raise ConfigError(f"the executor was given a {type(program).__name__}; give a static.Program")
    return program


def _fetches(program: Program, wanted: Any) -> list[Variable]:
    listed = [] if wanted is None else list(wanted) if isinstance(wanted, list | tuple) else [wanted]
    return [_fetch(program, fetch) for fetch in listed]


def _fetch(program: Program, wanted: Any) -> Variable:
    if hasattr(wanted, "get_lr"):
        rates = [name for name, scheduler in program.lr_schedulers if scheduler is wanted]
        raise FetchError(
            f"a learning-rate schedule is not a Variable; fetch the rate's variable: {rates or 'none yet'}"
        )
    if not isinstance(wanted, Variable | str):
        raise FetchError(f"fetch_list holds {wanted!r}; give Variables or their names")
    name = wanted.name if isinstance(wanted, Variable) else wanted
    variable = program.vars.get(name)
    if variable is None and isinstance(wanted, Variable):
        raise FetchError(
            f"fetch {name!r} belongs to {wanted.program.name!r}, not to {program.name!r}, which was run; "
            "fetch it from its own program, or clone that program"
        )
    if variable is None:
        advice = "; add it with static.gradients(loss, [x])" if name.endswith("@GRAD") else ""
        raise FetchError(f"fetch {name!r} is not in {program.name!r}{nearest(name, program.vars)}{advice}")
    return variable


def _feed_values(
    program: Program, compiled: Compiled, feed: FeedLike
) -> tuple[list[torch.Tensor], dict[Any, int]]:
    """The tensors in the order of the step's arguments, and the values of the unknown sizes."""
    fed = _merged(feed) if feed is not None else _from_readers(program)
    values = []
    sizes: dict[Any, int] = {}
    for want in compiled.feeds:
        if want.name not in fed:
            raise FeedError(_missing(program, want, fed))
        values.append(_tensor(want, fed[want.name], sizes))
    if len(fed) != len(compiled.feeds):
        _check_unused(program, compiled, fed, sizes)
    return values, sizes


def _check_unused(
    program: Program, compiled: Compiled, fed: Mapping[str, Any], sizes: dict[Any, int]
) -> None:
    """Check feeds that the step does not use; their sizes are checked too, because assumptions may refer to them."""
    known, used = program.feeds(), {want.name for want in compiled.feeds}
    for name, value in fed.items():
        if name not in known:
            raise FeedError(f"feed {name!r} is not a feed of {program.name!r}{nearest(name, known)}")
        if name not in used:
            _tensor(feed_of(program, name), value, sizes)


def _from_readers(program: Program) -> Mapping[str, Any]:
    fed: dict[str, Any] = {}
    for reader in program.readers:
        fed.update(reader.next_feed())
    return fed


def _merged(feed: FeedLike) -> Mapping[str, Any]:
    if isinstance(feed, Mapping):
        if not all(isinstance(name, str) for name in feed):
            raise FeedError("the keys of feed must be names; use feed={x.name: array}, not feed={x: array}")
        return feed
    if not isinstance(feed, list | tuple) or not all(isinstance(f, Mapping) for f in feed):
        raise FeedError(
            f"feed is a {type(feed).__name__}; give a dict {{name: array}} or a list of such dicts"
        )
    if len(feed) == 1:
        return feed[0]
    parts: dict[str, _Parts] = {}
    for mapping in feed:
        for name, value in mapping.items():
            parts.setdefault(name, _Parts()).append(value)
    for name, values in parts.items():
        if len(values) < len(feed):
            raise FeedError(
                f"feed {name!r} is in {len(values)} of {len(feed)} dicts; give it in each of them"
            )
    return parts


class _Parts(list[Any]):
    """The values of one name in a list of feeds; concatenated along the first dimension."""


def _missing(program: Program, want: Feed, fed: Mapping[str, Any]) -> str:
    shape = list(program.vars[want.name].shape)
    hint = nearest(want.name, fed) if fed else " (nothing was fed)"
    return f"feed {want.name!r} ({dtype_name(want.dtype)}{shape}) is missing{hint}; pass feed={{{want.name!r}: …}}"


def _tensor(want: Feed, value: Any, sizes: dict[Any, int]) -> torch.Tensor:
    """The fed value as a tensor of the right dtype and shape; unknown sizes are added to `sizes`."""
    if isinstance(value, _Parts):
        value = _concatenated(want, value)
    elif not isinstance(value, torch.Tensor):
        value = _converted(want, value)
    if value.dtype != want.dtype:
        raise FeedError(
            f"feed {want.name!r} is {dtype_name(value.dtype)} and must be {dtype_name(want.dtype)}; "
            f"convert it: array.astype({dtype_name(want.dtype)!r})"
        )
    shape = value.shape
    if len(shape) != len(want.sizes):
        raise FeedError(_wrong_shape(want, shape))
    for size, wanted in zip(shape, want.sizes, strict=True):
        if isinstance(wanted, int):
            if size != wanted:
                raise FeedError(_wrong_shape(want, shape))
        elif sizes.setdefault(wanted, size) != size:
            raise FeedError(_wrong_shape(want, shape))
    tensor: torch.Tensor = value.detach().contiguous()
    return tensor.clone() if want.is_mutated else tensor


def _converted(want: Feed, value: Any) -> torch.Tensor:
    """A tensor of the value; numbers and lists of them are converted to the feed's dtype, arrays must have it."""
    array = value.numpy() if hasattr(value, "numpy") else value
    try:
        tensor = to_tensor(array, want.name)
        return tensor if isinstance(array, np.ndarray) else converted(tensor, want.dtype, want.name)
    except DataError as e:
        raise FeedError(f"feed {e}") from e


def _concatenated(want: Feed, parts: _Parts) -> torch.Tensor:
    tensors = [part if isinstance(part, torch.Tensor) else _converted(want, part) for part in parts]
    if len({(t.dtype, t.shape[1:]) for t in tensors}) > 1 or not all(t.ndim for t in tensors):
        kinds = ", ".join(f"{dtype_name(t.dtype)}{list(t.shape)}" for t in tensors)
        raise FeedError(
            f"feed {want.name!r}: its {len(tensors)} parts cannot be concatenated along the first dimension: {kinds}; "
            "give them the same dtype and the same other dimensions"
        )
    return torch.cat(tensors)


def _wrong_shape(want: Feed, shape: Sequence[int]) -> str:
    wanted = ", ".join(str(s) if isinstance(s, int) else "any" for s in want.sizes)
    return f"feed {want.name!r} has shape {list(shape)} and must have [{wanted}]; reshape it, or change static.data"


def _to_numpy(value: torch.Tensor) -> np.ndarray[Any, Any]:
    value = value.float() if value.dtype is torch.bfloat16 else value
    return printable(value.numpy(force=True))


def printable(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array; if it has one element, as a OneElement."""
    return array.view(OneElement) if array.ndim and array.size == 1 else array


def _write_rates(program: Program, scope: Scope) -> None:
    for name, scheduler in program.lr_schedulers:
        rate = scope.get(name)
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
