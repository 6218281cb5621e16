"""Executor.run: check what is fed, run the step, give back what was asked for."""

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
from argosy.engine.errors import ArgosyError, ConfigError, FeedError, FetchError, NanInfError, ProgramError
from argosy.engine.ir.confirm import confirm_shapes
from argosy.engine.ir.dtypes import dtype_name
from argosy.engine.ir.nearest import nearest
from argosy.engine.ir.program import Build, Program, default_main_program
from argosy.engine.ir.show import op_name
from argosy.engine.ir.variable import Variable
from argosy.engine.ir.verify import describe
from argosy.engine.log import logger
from argosy.engine.runtime import remote, timeline
from argosy.engine.runtime.codegen import Step
from argosy.engine.runtime.compile import CPU, Compiled, Feed, compile_program, feed_of
from argosy.engine.runtime.dataset_training import Dataset, FetchHandler, Printed, run_dataset
from argosy.engine.runtime.flags import flag
from argosy.engine.runtime.memory import keep_freed_memory
from argosy.engine.runtime.module_values import check_sources
from argosy.engine.runtime.peak import MemoryReport
from argosy.engine.runtime.scope import Scope, global_scope
from argosy.engine.runtime.serve import serve

FeedLike = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None


class OneElement(np.ndarray[Any, Any]):
    """A fetched array with one element, which also formats as a number: `"%.5f" % loss`.

    Paddle's losses have shape [1] and its scripts print them so; plain NumPy refuses that since 2.4.
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
        self._last_run: weakref.WeakKeyDictionary[Program, Compiled] = weakref.WeakKeyDictionary()
        self._generators: weakref.WeakKeyDictionary[Program, torch.Tensor] = weakref.WeakKeyDictionary()
        self._for_inference: weakref.WeakKeyDictionary[Program, tuple[int, Program]] = (
            weakref.WeakKeyDictionary()
        )
        self._lock = threading.RLock()
        timeline.start_if_asked()

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

        `feed`: a dict by name, or a list of such dicts, which are put together along the first dimension.
        `fetch_list`: Variables or names. Nodes that neither a fetch nor an update needs are not run.
        `use_prune`: leave out the updates too, so that nothing is trained.
        The other arguments exist for Paddle's scripts; what was compiled is always kept.
        """
        build = getattr(program, "build", None)  # a CompiledProgram has its own
        program = _program(program)
        scope = scope or global_scope()
        if program.serving is not None:
            serve(program, scope)
            return []
        connected = remote.begin(program, scope) if program.remote is not None else None
        check_sources(program)
        fetches = _fetches(program, fetch_list)
        compiled = self._compile(program, fetches, use_prune, build or program.build)
        recorded = timeline.begin(compiled, program.name)
        values = _feed_values(program, compiled, feed)
        if self.device != CPU:
            values = [v.to(self.device, non_blocking=True) for v in values]
        with self._lock:
            states = compiled.state_values(scope)
        if compiled.runs == 1:
            keep_freed_memory()
        _write_rates(program, scope)
        if compiled.runs == 0:
            _agree(program, compiled)
        step = compiled.step if recorded is None else compiled.timed.step
        out = self._call(program, compiled, step, [*values, *states])
        with self._lock:
            compiled.runs += 1
            self._last_run[program] = compiled
        if compiled.runs == 1 and compiled.trains and logger.isEnabledFor(logging.INFO):
            logger.info("%s", self.memory_report(program).line())
        if compiled.schedule and not compiled.made:
            world().count_step()
        for name, value in zip(compiled.made, out[len(fetches) :], strict=True):
            scope.put(name, value)
        with self._lock:
            remote.step_schedulers(program, connected)
        found: list[Any] = [v.clone() if c else v for v, c in zip(out, compiled.copied, strict=False)]
        found = [_to_numpy(v) for v in found] if return_numpy else found
        if recorded is not None:
            timeline.end(recorded)
        return found

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
        printed = Printed.of(fetch_list, fetch_info, print_period)
        given, prefetch = program or default_main_program(), _program(program).prefetch
        scope = scope or global_scope()
        run_dataset(self, given, prefetch, dataset, scope, thread, debug, printed, fetch_handler)

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
        """`train_from_dataset` of the program for testing: no backward, no updates; counts such as auc's go on."""
        printed = Printed.of(fetch_list, fetch_info, print_period)
        given, scope = self._inference(_program(program)), scope or global_scope()
        run_dataset(self, given, given.prefetch, dataset, scope, thread, debug, printed, fetch_handler)

    def exchanges(self, program: Program | None = None) -> bool:
        """True if a run of the program exchanges something with other ranks, or waits for them on the servers."""
        build = getattr(program, "build", None)
        program = _program(program)
        if program.remote is not None and program.remote[0].is_in_step:
            return True
        return bool(self._compile(program, [], False, build or program.build).schedule)

    def memory_report(self, program: Program | None = None) -> MemoryReport:
        """How much memory the last run of a program took at its peak, where, and for what."""
        program = _program(program)
        if program not in self._last_run:
            raise ConfigError(
                f"{program.name!r} has not been run by this executor, so the sizes of its feeds are not known; run it "
                "once before memory_report"
            )
        compiled = self._last_run[program]
        return compiled.memory.report(program.name, compiled.sizes)

    def random_state(self, program: Program) -> torch.Tensor | None:
        """Where a program with a seed is in its stream of random numbers; None before its first run."""
        return self._generators.get(program)

    def set_random_state(self, program: Program, state: torch.Tensor | None) -> None:
        """Let a program with a seed go on from here; None: from its seed."""
        self._generators.pop(program, None)
        if state is not None:
            self._generators[program] = state

    def close(self) -> None:
        """Forget what was compiled; a trainer leaves its parameter servers."""
        remote.leave()
        self._compiled.clear()
        self._for_inference.clear()
        self._last_run.clear()

    def _inference(self, program: Program) -> Program:
        """The program without what trains or sends gradients; itself, if it does neither."""
        if all(node.meta["role"] == "forward" for node in program.graph.nodes):
            return program
        version, made = self._for_inference.get(program, (-1, program))
        if version != program.version:
            made = program.clone(for_test=True)
            self._for_inference[program] = (program.version, made)
        return made

    def _compile(self, program: Program, fetches: list[Variable], use_prune: bool, build: Build) -> Compiled:
        with self._lock:  # threads that come at once wait for the first
            return self._compile_once(program, fetches, use_prune, build)

    def _compile_once(
        self, program: Program, fetches: list[Variable], use_prune: bool, build: Build
    ) -> Compiled:
        checked = flag("FLAGS_check_nan_inf")
        key = (program.version, build, checked, use_prune, *(v.name for v in fetches))
        cache = self._compiled.setdefault(program, {})
        if key not in cache:
            check = _check_finite if checked else None
            made = compile_program(program, fetches, check, self.device, not use_prune, build)
            cache = {
                k: c for k, c in cache.items() if k[0] == program.version
            }  # older versions never come back
            cache[(program.version, *key[1:])] = made
            self._compiled[program] = cache
            return made
        return cache[key]

    def _call(
        self, program: Program, compiled: Compiled, step: Step, arguments: list[torch.Tensor]
    ) -> tuple[Any, ...]:
        exchanged = world().num_started()
        try:
            if program.random_seed and compiled.draws:
                return self._seeded(program, compiled, step, arguments)
            with torch._C._AutoDispatchBelowAutograd():
                return step.function(*arguments)
        except BaseException as e:
            world().note_failed_step(exchanged, e)
            is_foreign = isinstance(e, Exception) and not isinstance(e, ArgosyError)
            node = step.node_of(e) if is_foreign else None
            if node is None:
                raise
            raise ProgramError(f"{describe(node)} failed in {node.meta['role']}: {e}") from e

    def _seeded(
        self, program: Program, compiled: Compiled, step: Step, arguments: list[torch.Tensor]
    ) -> tuple[Any, ...]:
        """A program with a seed draws from its own stream; a startup program starts it anew every time.

        Each rank has a stream of its own, else all would drop out the same units; first values are the same.
        """
        with self._lock, torch.random.fork_rng(devices=[]):  # torch's generator is of the process
            if program in self._generators and not compiled.made:
                torch.set_rng_state(self._generators[program])
            else:
                torch.manual_seed(program.random_seed + (0 if compiled.made else world().rank))
            with torch._C._AutoDispatchBelowAutograd():
                out = step.function(*arguments)
            self._generators[program] = torch.get_rng_state()
            return out


def _agree(program: Program, compiled: Compiled) -> None:
    """Compare what will be exchanged with the other ranks, unless they have agreed on the same before.

    A rank that runs something else meanwhile is found by those who wait for it.
    """
    if not compiled.schedule:
        if program.remote is None:
            _warn_if_alone(program, compiled)
        return
    if world().size == 1 and compiled.trains:
        raise ProgramError(
            f"{program.name} was built for several ranks, and this process is alone; start it with fleetrun and call "
            "fleet.init, or build the program anew"
        )
    version, agreed = program.schedules
    if version != program.version:
        agreed = frozenset()
    if compiled.schedule not in agreed:
        compare_schedules(world(), compiled.schedule)
        program.schedules = (program.version, agreed | {compiled.schedule})


def _warn_if_alone(program: Program, compiled: Compiled) -> None:
    """The likeliest mistake of the three lines: every rank trains a model of its own, and nobody notices."""
    _, size = env.rank_and_size()
    if size > 1 and compiled.trains:
        logger.warning(
            "%s trains on this rank alone: nothing is exchanged with the %d other ranks of the job; call fleet.init "
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
    return [_fetch(program, one) for one in listed]


def _fetch(program: Program, wanted: Any) -> Variable:
    if hasattr(wanted, "get_lr"):
        rates = [name for name, scheduler in program.lr_schedulers if scheduler is wanted]
        raise FetchError(
            f"a learning-rate schedule is no Variable; fetch the rate's variable: {rates or 'none yet'}"
        )
    if not isinstance(wanted, Variable | str):
        raise FetchError(f"fetch_list holds {wanted!r}; give Variables or their names")
    name = wanted.name if isinstance(wanted, Variable) else wanted
    found = program.vars.get(name)
    if found is None and isinstance(wanted, Variable):
        raise FetchError(
            f"fetch {name!r} belongs to {wanted.program.name!r}, not to {program.name!r}, which was run; "
            "fetch it from its own program, or clone that program"
        )
    if found is None:
        asked = "; ask for it with static.gradients(loss, [x])" if name.endswith("@GRAD") else ""
        raise FetchError(f"fetch {name!r} is not in {program.name!r}{nearest(name, program.vars)}{asked}")
    return found


def _feed_values(program: Program, compiled: Compiled, feed: FeedLike) -> list[torch.Tensor]:
    given = _merged(feed) if feed is not None else _from_readers(program)
    values = []
    sizes: dict[Any, int] = {}
    for want in compiled.feeds:
        if want.name not in given:
            raise FeedError(_missing(program, want, given))
        values.append(_tensor(want, given[want.name], sizes))
    if len(given) != len(compiled.feeds):
        _note_unused(program, compiled, given, sizes)
    compiled.sizes = sizes
    key = tuple(sizes.values())
    if key not in compiled.checked_sizes:
        if doubtful := program.symbols.check(sizes):
            confirm_shapes(compiled.recorded, program.symbols, doubtful, sizes)
        compiled.checked_sizes.add(key)
    return values


def _note_unused(
    program: Program, compiled: Compiled, given: Mapping[str, Any], sizes: dict[Any, int]
) -> None:
    """What is fed and not needed must still be a feed, and its sizes count: code may have looked at them."""
    known, used = program.feeds(), {want.name for want in compiled.feeds}
    for name, value in given.items():
        if name not in known:
            raise FeedError(f"feed {name!r} is no feed of {program.name!r}{nearest(name, known)}")
        if name not in used:
            _tensor(feed_of(program, name), value, sizes)


def _from_readers(program: Program) -> Mapping[str, Any]:
    given: dict[str, Any] = {}
    for reader in program.readers:
        given.update(reader.next_feed())
    return given


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
    names = {name: None for one in feed for name in one}
    return {name: torch.cat([torch.as_tensor(one[name]) for one in feed]) for name in names}


def _missing(program: Program, want: Feed, given: Mapping[str, Any]) -> str:
    shape = list(program.vars[want.name].shape)
    hint = nearest(want.name, given) if given else " (nothing was fed)"
    return f"feed {want.name!r} ({dtype_name(want.dtype)}{shape}) is missing{hint}; pass feed={{{want.name!r}: …}}"


def _tensor(want: Feed, value: Any, sizes: dict[Any, int]) -> torch.Tensor:
    """The fed value as a tensor of the right dtype and shape; unknown sizes are noted in `sizes`."""
    if isinstance(value, np.ndarray):
        plain = value.flags.writeable and value.flags.c_contiguous and value.dtype.isnative
        value = torch.from_numpy(
            value if plain else np.array(value, value.dtype.newbyteorder("="), order="C")
        )
    elif not isinstance(value, torch.Tensor):
        value = _from_python(want, value)
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
    return tensor.clone() if want.is_changed else tensor


def _from_python(want: Feed, value: Any) -> torch.Tensor:
    try:
        array = value.numpy() if hasattr(value, "numpy") else np.asarray(value, _numpy_dtype(want))
        return torch.as_tensor(array)
    except (TypeError, ValueError) as e:
        raise FeedError(
            f"feed {want.name!r} is no array of {dtype_name(want.dtype)}: {e}; pad it, or convert it"
        ) from e


def _wrong_shape(want: Feed, shape: Sequence[int]) -> str:
    wanted = ", ".join(str(s) if isinstance(s, int) else "any" for s in want.sizes)
    return f"feed {want.name!r} has shape {list(shape)} and must have [{wanted}]; reshape it, or change static.data"


def _numpy_dtype(want: Feed) -> Any:
    return None if want.dtype is torch.bfloat16 else dtype_name(want.dtype)


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
        return  # memory as it was found, for the next node to fill
    for one in value if isinstance(value, tuple | list) else (value,):
        if isinstance(one, torch.Tensor) and one.is_floating_point() and not bool(torch.isfinite(one).all()):
            bad = "NaN" if bool(torch.isnan(one).any()) else "infinity"
            raise NanInfError(
                f"{describe(node)} made {int((~torch.isfinite(one)).sum())} values of {bad} in "
                f"{dtype_name(one.dtype)}{list(one.shape)} ({node.meta['role']}); it is the first node that did"
            )
