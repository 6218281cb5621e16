"""Program: the fx graph of a whole step, and the names of its values.

    feeds ─┐
           ├─▶ forward ─▶ backward ─▶ optimize          one graph, nodes in execution order
    scope ─┘                             │
      ▲──────────────────────────────────┘              parameters are updated in place

It is data: it holds no tensors but constants, and can be printed, copied, rewritten and saved. `engine.runtime` runs
it.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from argosy.engine.errors import ArgosyError, ConfigError, ProgramError
from argosy.engine.ir import module_names, names, show
from argosy.engine.ir.build_errors import building, needs_data
from argosy.engine.ir.decompositions import compared_only
from argosy.engine.ir.dtypes import dtype_name, to_dtype
from argosy.engine.ir.lowering import Lowering
from argosy.engine.ir.operator import Operator, operators
from argosy.engine.ir.recorded_call import (
    RecordedCall,
    Substitute,
    new_number,
    substituted,
    without_training,
)
from argosy.engine.ir.recorder import Recorder
from argosy.engine.ir.source import user_line
from argosy.engine.ir.symbols import Symbols
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.suggest import nearest

V = TypeVar("V", bound=Variable)


@dataclass(frozen=True)
class Build:
    """How a program is compiled."""

    without_passes: frozenset[str] = frozenset()
    """Names of the default passes that are switched off."""
    fusions: tuple[Any, ...] = ()
    """Fusion passes; they run on a copy, when the program is compiled or printed."""
    compiler: str = ""
    """The compiler of the regions between collectives: "inductor", or "" for none."""
    memory_optimize: bool | None = None
    """True: rematerialize all activations that can be; False: none; None: the default."""


@dataclass(frozen=True)
class OptimizerCall:
    """One call of an optimizer's `apply_gradients`."""

    optimizer: Any
    parameters: tuple[str, ...]
    gradients: tuple[str, ...]
    clipped: tuple[torch.Tensor, ...]
    """The gradients after clipping."""
    rate: str
    """The variable of the learning rate."""


class RecordAgain(BaseException):
    """Raised by code that is being recorded: discard its nodes, and call it again."""


class Program:
    """A static program; layers called under `program_guard` add to it."""

    def __init__(self, name: str = "") -> None:
        self.name = name or names.generate("program")
        self.graph = fx.Graph()
        self.symbols = Symbols()
        self.recorder = Recorder(self.graph, self.symbols)
        self.vars: dict[str, Variable] = {}
        self._variable_of: dict[int, Variable] = {}  # id of a fake tensor -> its variable
        self.version = 0
        """Incremented by every change; a compiled step is valid for one version."""
        self.random_seed = 0
        """If not 0: the program draws its random numbers from a separate generator with this seed."""
        self.lr_schedulers: list[tuple[str, Any]] = []
        """(variable, scheduler): the executor writes the scheduler's rate into the variable before a run."""
        self.readers: list[Any] = []
        """Data loaders that feed the program when it is run without feed."""
        self.module_tensors: dict[int, tuple[torch.Tensor, str]] = {}
        """Tensors of torch modules that are variables of the program: id -> (tensor, name)."""
        self.calls: dict[int, RecordedCall] = {}
        """Calls that may differ in evaluation mode, by the number in the meta `call` of their nodes."""
        self.live_tensors: list[tuple[torch.nn.Module, str, torch.Tensor]] = []
        """In a startup program: the tensors (module, name in it, tensor) whose values initialize variables."""
        self.build = Build()
        """How it is compiled, from its build strategy."""
        self.logged_notices: set[tuple[str, str]] = set()
        """(pass, line): notices of its passes that were logged already."""
        self.schedules: tuple[int, frozenset[tuple[str, ...]]] = (0, frozenset())
        """(version, lists of collectives): the schedules that the ranks have agreed on for this version."""
        self.optimizer_calls: list[OptimizerCall] = []
        """The calls of optimizers, so that a transpiler can build the same updates on a parameter server."""
        self.seeds: dict[str, tuple[str, ...]] = {}
        """Gradient -> the variables loss@GRAD that its backward starts with; empty if the user gave others."""
        self.initializers: dict[str, Any] = {}
        """The initializer of each parameter."""
        self.remote: Any = None
        """In a trainer's program: the plan of its parameter servers, and its number."""
        self.server_spec: Any = None
        """In a parameter server's program: what it serves; `Executor.run` returns when all trainers have left."""
        self.prefetch: Callable[[Mapping[str, Any]], None] | None = None
        """Called with the next feed, if it is known before the current one runs."""
        self.has_history = True
        """False: loaded, or rewritten for testing, so that it has no autograd graph to differentiate."""

    # --- building -------------------------------------------------------------------------------------

    @contextmanager
    def recording(self, role: str | None = None) -> Iterator[None]:
        """Record torch operators on the program's fake tensors as nodes."""
        in_role = self.recorder.in_role(role or self.recorder.role)
        # The python dispatcher selects torch's decompositions that keep sizes symbolic: matmul, resizing.
        with (
            in_role,
            compared_only(),
            enable_python_dispatcher(),
            self.symbols.mode,
            self.recorder,
            Lowering(self._variable_value),
        ):
            yield
        self.touch()

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Run ops on the program's fake tensors as under `recording`, but without recording them."""
        with enable_python_dispatcher(), self.symbols.mode, torch.no_grad():
            yield
        self.touch()

    def touch(self) -> None:
        """Increment the version: the program has changed."""
        self.version += 1

    def call(
        self,
        func: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        layer: str = "",
        layer_name: str | None = None,
    ) -> Any:
        """Run a torch function on Variables: its operators become nodes, its tensors new Variables.

        The results are called `layer_name`.tmp_0, by default relu_0.tmp_0 for layer "relu".
        """
        plain_args, plain_kwargs = self.unwrap((tuple(args), kwargs))
        layer = layer or _plain_name(func)

        def what() -> str:
            given = ", ".join(_shown(a) for a in (*args, *kwargs.values()) if isinstance(a, Variable))
            return f"{layer}({given})"

        with building(what, self.symbols):
            evaluation = without_training(func, plain_args, plain_kwargs)
            if evaluation is None:
                out = self._recorded(lambda: func(*plain_args, **plain_kwargs))
            else:
                other_args, other_kwargs = evaluation

                def evaluate(substitute: Substitute) -> Any:
                    new_args, new_kwargs = substituted((other_args, other_kwargs), substitute)
                    return func(*new_args, **new_kwargs)

                values = [t for t in tree_leaves((plain_args, plain_kwargs)) if isinstance(t, FakeTensor)]
                out = self.record_call(what(), values, lambda: func(*plain_args, **plain_kwargs), evaluate)
        return self.wrap(out, layer_name or names.generate(layer))

    def _recorded(self, run: Callable[[], Any]) -> Any:
        """Call `run` and record its ops; returns its result.

        Code that raises for a size (`if x.shape[1] != self.channels: raise …`) states what the size must be: if it
        was unknown, the other branch is assumed, and `run` is called again.
        """
        env = self.symbols.env
        first: Exception | None = None
        while True:
            before = env.snapshot()
            try:
                with self.recorder.attempt(), self.recording():
                    return run()
            except RecordAgain:
                env.restore(before)
            except Exception as e:
                first = first or e
                other = None if isinstance(e, ArgosyError) or needs_data(e) else env.other_branch(before)
                env.restore(before)
                if other is None or not env.assume(other.condition, other.line):
                    raise first from None

    def record_call(
        self,
        what: str,
        inputs: Sequence[torch.Tensor],
        run: Callable[[], Any],
        evaluate: Callable[[Substitute], Any] | None,
        has_attributes: bool = False,
    ) -> Any:
        """Record what `run` computes as one call; `evaluate` records the same call in evaluation mode."""
        number, before = new_number(), tuple((value, self.recorder.node(value)) for value in inputs)
        with self.recorder.in_call(number):
            out = self._recorded(run)
            if evaluate is not None:
                out = self._with_distinct_nodes(out, number)
        after = tuple(self.recorder.node(value) for value in inputs)
        self.calls[number] = RecordedCall(
            f"{what} at {user_line()}", before, after, out, evaluate, has_attributes
        )
        return out

    def _with_distinct_nodes(self, tree: Any, number: int) -> Any:
        """Add alias nodes for results that are inputs, or duplicates: in evaluation mode they may differ."""
        seen: set[fx.Node] = set()

        def distinct(value: torch.Tensor) -> torch.Tensor:
            if not isinstance(value, FakeTensor):
                return value
            node = self.recorder.node(value)
            if node.meta.get("call") == number and node not in seen:
                seen.add(node)
                return value
            with self.recording(), self.recorder.recording_aliases():
                value = torch.ops.aten.alias.default(value)
            seen.add(self.recorder.node(value))
            return value

        return tree_map_only(torch.Tensor, distinct, tree)

    def unwrap(self, tree: Any) -> Any:
        """Replace Variables by their fake tensors, torch Parameters by parameters, arrays by constants."""

        def unwrapped(value: Any) -> Any:
            if isinstance(value, Variable):
                return self.check_owner(value).value
            if isinstance(value, np.ndarray):
                return torch.from_numpy(value.copy())  # a constant of the program
            return self.add_module_tensor(value, names.generate("parameter")).value

        return tree_map_only((Variable, torch.nn.Parameter, np.ndarray), unwrapped, tree)

    def check_owner(self, variable: Variable) -> Variable:
        """The variable; raises ProgramError if it belongs to another program."""
        if variable.program is not self:
            raise ProgramError(
                f"Variable {variable.name!r} belongs to {variable.program.name!r} and was used in {self.name!r}; "
                "build both under the same program_guard, or feed its value"
            )
        return variable

    def wrap(self, tree: Any, layer: str) -> Any:
        """Replace fake tensors by Variables named `layer`.tmp_0, .tmp_1, …"""

        def variable(value: torch.Tensor) -> Variable:
            known = self._variable_of.get(id(value))
            if known is not None and known.value is value and self.vars.get(known.name) is known:
                return known
            return self.add(Variable(self, self._unused_name(f"{layer}.tmp"), value))

        return tree_map_only(torch.Tensor, variable, tree)

    def _unused_name(self, key: str) -> str:
        while (name := names.generate(key)) in self.vars:
            pass
        return name

    def add(self, variable: V) -> V:
        """Register a variable under its name."""
        self.enter(variable)
        self.recorder.node(variable.value)  # adds the getitem node of one of several outputs
        self.touch()
        return variable

    def data(
        self, name: str, shape: Sequence[int | None], dtype: Any = "float32", lod_level: int = 0
    ) -> Variable:
        """A variable that is fed; None or -1 in the shape is a size that is unknown until it is fed."""
        sizes = [_size(name, size) for size in shape]
        wanted = to_dtype(dtype)
        if name in self.vars:
            old = self.vars[name]
            if (
                old.is_data
                and old.dtype == wanted
                and old.shape == tuple(-1 if s is None else s for s in sizes)
            ):
                return old
            raise ProgramError(
                f"variable {name!r} exists already ({old!r}); choose another name for the feed"
            )
        fake = self.symbols.fake(name, sizes, wanted)
        self.recorder.placeholder(name, fake)
        feed = self.add(Variable(self, name, fake))
        feed.is_data, feed.lod_level, feed._stop_gradient = True, lod_level, True
        return feed

    def state(
        self, name: str, shape: Sequence[int], dtype: Any, trainable: bool | None = None, **attrs: Any
    ) -> Variable:
        """A variable of the scope: a Parameter if `trainable` is given, else optimizer state or a statistic."""
        wanted = to_dtype(dtype)
        if (old := self.vars.get(name)) is not None:
            if not old.persistable or old.shape != tuple(shape) or old.dtype != wanted:
                raise ProgramError(
                    f"variable {name!r} exists already as {dtype_name(old.dtype)}{list(old.shape)} and cannot be "
                    f"{dtype_name(wanted)}{list(shape)} too; give one of them another name"
                )
            return old
        with self.symbols.mode:
            fake = torch.empty(
                list(shape), dtype=wanted, requires_grad=trainable is not None and wanted.is_floating_point
            )
        self.recorder.placeholder(name, fake)
        if trainable is None:
            variable = self.add(Variable(self, name, fake))
            variable.persistable = variable._stop_gradient = True
            return variable
        return self.add(Parameter(self, name, fake, trainable=trainable, **attrs))

    def _variable_value(self, tensor: torch.Tensor) -> torch.Tensor:
        """The fake tensor of a real tensor's variable, created if the tensor requires gradients; else the tensor."""
        if isinstance(tensor, FakeTensor) or not (tensor.requires_grad or id(tensor) in self.module_tensors):
            return tensor
        if not tensor.is_leaf:
            raise ProgramError(
                f"a tensor of shape {list(tensor.shape)} was computed in eager mode from tensors that require "
                "gradients, which do not flow there from a program; compute it inside of the program, or detach it"
            )
        with _disable_current_modes():
            return self.add_module_tensor(tensor, names.generate("parameter")).value

    def add_module_tensor(
        self, tensor: torch.Tensor, name: str, module: torch.nn.Module | None = None
    ) -> Variable:
        """Add a variable for a torch Parameter or buffer; the startup program initializes it with the tensor's value.

        A tensor has the same name in all programs: that of its first use. `name` is its path in `module`, if given.
        """
        if id(tensor) in self.module_tensors:
            return self.vars[self.module_tensors[id(tensor)][1]]
        key = name.partition(".")[2]
        name = module_names.name_of(tensor, name)
        if name in self.vars:
            raise ProgramError(
                f"a tensor of shape {list(tensor.shape)} is variable {name!r} of another program, and "
                f"{self.name!r} has another variable of that name; build both programs under one "
                "unique_name.guard, or none"
            )
        is_parameter = isinstance(tensor, torch.nn.Parameter) or tensor.requires_grad
        variable = self.state(
            name, tuple(tensor.shape), tensor.dtype, tensor.requires_grad if is_parameter else None
        )
        self.module_tensors[id(tensor)] = (tensor, name)
        startup = default_startup_program()
        if name not in startup.vars:
            startup.define(name, startup.recorder.constant(tensor).meta["val"].clone)
            if module is not None:
                startup.live_tensors.append((module, key, tensor))
        return variable

    def define(self, name: str, make: Callable[[], torch.Tensor]) -> Variable:
        """In a startup program: initialize the variable of the scope with what `make` computes."""
        if name in self.vars:
            return self.vars[name]  # the first initializer wins, as for shared parameters in Paddle
        with self.recording(), torch.no_grad():
            variable = self.add(Variable(self, name, make()))
        variable.persistable = variable._stop_gradient = True
        return variable

    def enter(self, variable: V) -> V:
        """Register a variable whose value has a node already, as in a copy of another program."""
        self.vars[variable.name] = variable
        self._variable_of.setdefault(id(variable.value), variable)
        return variable

    def has_value(self, value: torch.Tensor) -> bool:
        """True if a variable has this fake tensor."""
        known = self._variable_of.get(id(value))
        return known is not None and known.value is value

    def copy_settings(self, program: Program) -> None:
        """Copy what is not in the graph from the program that this one is a copy of."""
        self.random_seed = program.random_seed
        self.lr_schedulers = list(program.lr_schedulers)
        self.module_tensors = dict(program.module_tensors)
        self.live_tensors = list(program.live_tensors)
        self.optimizer_calls = list(program.optimizer_calls)
        self.seeds = dict(program.seeds)
        self.initializers = program.initializers
        self.remote, self.prefetch = program.remote, program.prefetch
        self.build = program.build

    def attach_reader(self, reader: Any) -> None:
        """Let a started data loader feed the program."""
        self.readers.append(reader)

    # --- queries --------------------------------------------------------------------------------------

    def var(self, name: str) -> Variable:
        """The variable of this name."""
        if name not in self.vars:
            raise ConfigError(f"{self.name} has no variable {name!r}{nearest(name, self.vars)}")
        return self.vars[name]

    def global_block(self) -> Program:
        """Paddle's programs have several blocks; Argosy's have one, the program itself."""
        return self

    def has_var(self, name: str) -> bool:
        return name in self.vars

    @property
    def ops(self) -> list[Operator]:
        """The operators in execution order."""
        return operators(self.graph, self.names_of_nodes())

    def all_parameters(self) -> list[Parameter]:
        return [v for v in self.vars.values() if isinstance(v, Parameter)]

    def list_vars(self) -> list[Variable]:
        return list(self.vars.values())

    def feeds(self) -> dict[str, Variable]:
        return {name: v for name, v in self.vars.items() if v.is_data}

    def persistables(self) -> dict[str, Variable]:
        return {name: v for name, v in self.vars.items() if v.persistable}

    def names_of_nodes(self) -> dict[fx.Node, str]:
        """The name of each node: that of its variable, else fx's."""
        named: dict[fx.Node, str] = {}
        for variable in self.vars.values():  # of two variables with one value, the first gives the name
            entry = self.recorder.node_of.get(variable.value)
            if isinstance(entry, fx.Node):
                named.setdefault(entry, variable.name)
            if (node := self.recorder.placeholder_of.get(variable.value)) is not None:
                named.setdefault(node, variable.name)
        return {node: named.get(node, node.name) for node in self.graph.nodes}

    def __str__(self) -> str:
        return self.to_string()

    def to_string(
        self, throw_on_error: bool = False, with_details: bool = False, *, source: bool = False
    ) -> str:
        """One line per node, after fusion; `source=True` (or Paddle's `with_details`) adds the user's source lines."""
        return show.text(self.fused(), source=source or with_details)

    def to_dot(self) -> str:
        """The graph in graphviz's DOT language, coloured by role, after fusion."""
        return show.dot(self.fused())

    def to_svg(self, path: str | None = None) -> str:
        """The graph as SVG; needs graphviz's `dot`."""
        return show.svg(self.fused(), path)

    def fused(self, build: Build | None = None) -> Program:
        """A copy with the fusions of a build strategy (by default its own), for printing; itself without fusions."""
        build = self.build if build is None else build
        if not build.fusions:
            return self
        from argosy.engine.ir.clone import copy_nodes

        copied = copy_nodes(self, list(self.graph.nodes), self.name)
        copied.build = Build()
        for fusion in build.fusions:
            fusion.run(copied.graph)
        return copied

    # --- copying --------------------------------------------------------------------------------------

    def clone(self, for_test: bool = False) -> Program:
        """A copy; `for_test`: without backward and updates, and with batch_norm and dropout in inference mode."""
        from argosy.engine.ir.clone import clone

        return clone(self, for_test)


def _size(name: str, size: int | None) -> int | None:
    if size is None or size == -1:
        return None
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise ConfigError(
            f"data {name!r}: {size!r} is no size; use a positive number, or None for what is fed"
        )
    return size


def _shown(variable: Variable) -> str:
    return f"{variable.name}: {dtype_name(variable.dtype)}{list(variable.shape)}"


def _plain_name(func: Callable[..., Any]) -> str:
    return getattr(func, "__name__", type(func).__name__).strip("_")


# Created at first use: the first program imports parts of torch, which takes a second.
_main: Program | None = None
_startup: Program | None = None


def default_main_program() -> Program:
    """The program that layers add to."""
    global _main  # noqa: PLW0603  (Paddle's interface: default programs are of the process)
    if _main is None:
        _main = Program("main_program")
    return _main


def default_startup_program() -> Program:
    """The program that initializes the variables of the scope."""
    global _startup  # noqa: PLW0603
    if _startup is None:
        _startup = Program("startup_program")
    return _startup


@contextmanager
def program_guard(main_program: Program, startup_program: Program | None = None) -> Iterator[None]:
    """Make these the default programs, which layers add to."""
    global _main, _startup  # noqa: PLW0603
    for program, what in ((main_program, "main_program"), (startup_program, "startup_program")):
        if program is not None and not isinstance(program, Program):
            raise ConfigError(f"program_guard: {what} is a {type(program).__name__}; give a static.Program")
    old = _main, _startup
    _main = main_program
    _startup = startup_program or _startup
    try:
        yield
    finally:
        _main, _startup = old
