"""Program: the fx graph of a whole step, and the names of its values.

    feeds ─┐
           ├─▶ forward ─▶ backward ─▶ optimize          one graph, nodes in execution order
    scope ─┘                             │
      ▲──────────────────────────────────┘              parameters are updated in place

It is data: it holds no tensors but constants, and can be printed, copied, rewritten and saved. `engine.runtime` runs
it. How it is compiled (`build`), how it is trained (`training`) and its role in a job with parameter servers (`role`)
are immutable values that copies share.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher

from argosy.engine.data.feed import FeedReader
from argosy.engine.errors import ArgumentTypeError, ConfigError, ProgramError, nearest
from argosy.engine.ir import names, show
from argosy.engine.ir.alternatives import Alternatives
from argosy.engine.ir.block_recorder import BlockRecorder
from argosy.engine.ir.build import Build
from argosy.engine.ir.decompositions import recorded_decompositions
from argosy.engine.ir.dtypes import dtype_name, to_dtype
from argosy.engine.ir.lowering import Lowering
from argosy.engine.ir.module_tensors import ModuleTensors, add_module_tensor, value_of_tensor
from argosy.engine.ir.operator import Operator, operators
from argosy.engine.ir.ragged import LENGTHS, ROWS_HINT, companion_of, set_lengths
from argosy.engine.ir.record import record_function
from argosy.engine.ir.recorder import Recorder
from argosy.engine.ir.roles import JobRole
from argosy.engine.ir.symbols import Symbols
from argosy.engine.ir.training_info import TrainingInfo
from argosy.engine.ir.variable import Parameter, Variable

V = TypeVar("V", bound=Variable)
MAX_LOD_LEVEL = 3


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
        self.module_tensors = ModuleTensors()
        """Tensors of torch modules that are variables of the program."""
        self.build = Build()
        """How it is compiled, from its build strategy."""
        self.training = TrainingInfo()
        """What backward and the optimizers have added."""
        self.role: JobRole | None = None
        """Its role in a job with parameter servers; None: an ordinary program."""
        self.alternatives: Alternatives | None = None
        """Programs with the same variables that the executor may run in its place; a copy has none."""
        self.alternative_of: Program | None = None
        """The program in whose place this one runs, with its random numbers."""
        self.readers: tuple[FeedReader, ...] = ()
        """Data loaders that feed the program once they are started; a copy has those whose variables it has."""

    # --- building -------------------------------------------------------------------------------------

    @contextmanager
    def recording(self, role: str | None = None) -> Iterator[None]:
        """Record torch operators on the program's fake tensors as nodes."""
        in_role = self.recorder.in_role(role or self.recorder.role)
        # The python dispatcher selects torch's decompositions that keep sizes symbolic: matmul, resizing.
        with (
            in_role,
            recorded_decompositions(),
            enable_python_dispatcher(),
            self.symbols.mode,
            self.recorder,
            Lowering(partial(value_of_tensor, self)),
            _current(self),
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
        return record_function(self, func, args, kwargs, layer, layer_name)

    def check_owner(self, variable: Variable) -> Variable:
        """The variable; raises ProgramError if it belongs to another program."""
        if variable.program is not self:
            raise ProgramError(
                f"Variable {variable.name!r} belongs to {variable.program.name!r} and was used in {self.name!r}; "
                "build both under the same program_guard, or feed its value"
            )
        return variable

    def add(self, variable: V) -> V:
        """Register a variable under its name."""
        self.register(variable)
        self.recorder.node(variable.value)  # adds the getitem node of one of several outputs
        self.touch()
        return variable

    def data(
        self, name: str, shape: Sequence[int | None], dtype: Any = "float32", lod_level: int = 0
    ) -> Variable:
        """A variable that is fed; None or -1 in the shape is a size that is unknown until it is fed.

        With `lod_level` its first dimension has the rows of sequences of different lengths (ragged.py).
        """
        sizes = [_size(name, size) for size in shape]
        if lod_level and (not sizes or sizes[0] is not None or not 0 < lod_level <= MAX_LOD_LEVEL):
            raise ConfigError(
                f"data {name!r}: shape {list(shape)} with lod_level={lod_level!r}; the first size of a variable of "
                f"sequences must be None, and lod_level 1 to {MAX_LOD_LEVEL}"
            )
        wanted = to_dtype(dtype)
        if name in self.vars:
            old = self.vars[name]
            if (
                old.is_data
                and old.dtype == wanted
                and old.lod_level == lod_level
                and old.shape == tuple(-1 if s is None else s for s in sizes)
            ):
                return old
            raise ProgramError(
                f"variable {name!r} exists already ({old!r}); choose another name for the feed"
            )
        hint = {"first_hint": ROWS_HINT} if lod_level else {}
        fake = self.symbols.fake(name, sizes, wanted, **hint)
        self.recorder.placeholder(name, fake)
        feed = self.add(Variable(self, name, fake, stop_gradient=True))
        feed.is_data = True
        if lod_level:
            set_lengths(self, fake.shape[0], self.data(name + LENGTHS, [None], torch.int64, lod_level - 1))
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
            variable = self.add(Variable(self, name, fake, stop_gradient=True))
            variable.persistable = True
            return variable
        return self.add(Parameter(self, name, fake, trainable=trainable, **attrs))

    def add_module_tensor(
        self, tensor: torch.Tensor, name: str, module: torch.nn.Module | None = None
    ) -> Variable:
        """The variable of a torch Parameter or buffer, which is added with the first call.

        The startup program initializes it with the tensor's value. `name` is its path in `module`, if given.
        """
        known = self.module_tensors.name_of(tensor)
        if known is not None:
            return self.vars[known]
        return add_module_tensor(self, default_startup_program(), tensor, name, module)

    def define(self, name: str, make: Callable[[], torch.Tensor]) -> Variable:
        """In a startup program: initialize the variable of the scope with what `make` computes."""
        if name in self.vars:
            return self.vars[name]  # the first initializer wins, as for shared parameters in Paddle
        with self.recording(), torch.no_grad():
            variable = self.add(Variable(self, name, make(), stop_gradient=True))
        variable.persistable = True
        return variable

    def register(self, variable: V) -> V:
        """Register a variable whose value has a node already, as in a copy of another program."""
        self.vars[variable.name] = variable
        self._variable_of.setdefault(id(variable.value), variable)
        return variable

    def unregister(self, variable: V) -> V:
        """Remove a variable that code after this must not find, as one that a block has computed."""
        del self.vars[variable.name]
        if self._variable_of.get(id(variable.value)) is variable:
            del self._variable_of[id(variable.value)]
        return variable

    def write(self, variable: Variable, value: torch.Tensor) -> None:
        """Give a variable a new value, which code that follows reads; in the scope too, if it is persistable.

        Only the name changes its meaning: values that were computed from the old one stay as they are.
        """
        if self.is_outside(variable):
            assert isinstance(self.recorder, BlockRecorder), f"{variable!r} is outside of no block"
            self.recorder.write(variable, value)
        elif variable.persistable:
            with self.recording(), torch.no_grad():
                variable.value.copy_(value)
        else:
            if variable.is_data:  # the feed keeps its name
                self.vars[variable.name] = self._variable_of[id(variable.value)] = copy.copy(variable)
                variable.name, variable.is_data = names.generate_unused(variable.name, self.vars), False
            if value.requires_grad and not variable.value.requires_grad:
                variable._stop_gradient = False
            variable.value, variable.declared_shape = value, None
            self.register(variable)
            self._variable_of[id(value)] = variable
        self.touch()

    def is_outside(self, variable: Variable) -> bool:
        """True while a block is recorded that did not compute the variable: writing to it must not mutate it."""
        is_in_block = isinstance(self.recorder, BlockRecorder) and not self.recorder.is_local(variable.value)
        return is_in_block and variable.declared_shape is None

    def variable_of(self, value: torch.Tensor) -> Variable | None:
        """The first variable with this fake tensor; None if there is none."""
        known = self._variable_of.get(id(value))
        return known if known is not None and known.value is value else None

    def copy_attachments(self, program: Program) -> None:
        """Share what is not in the graph with the program that this one is a copy of."""
        self.random_seed = program.random_seed
        self.module_tensors = program.module_tensors.copy()
        self.build, self.training, self.role = program.build, program.training, program.role
        self.readers = program.readers

    def attach_reader(self, reader: FeedReader) -> None:
        """Let a started data loader feed the program."""
        self.readers += (reader,)

    def keep_readers_of_feeds(self) -> None:
        """In a copy: detach the data loaders that feed variables which the copy does not have."""
        feeds = self.feeds().keys()
        self.readers = tuple(reader for reader in self.readers if feeds >= set(reader.feed_names))

    # --- queries --------------------------------------------------------------------------------------

    def var(self, name: str) -> Variable:
        """The variable of this name."""
        if name not in self.vars:
            raise ConfigError(f"{self.name} has no variable {name!r}{nearest(name, self.vars)}")
        return self.vars[name]

    def global_block(self) -> Program:
        """Paddle's programs have several blocks; Argosy's have one, the program itself."""
        return self

    current_block = global_block

    def create_var(
        self, name: str | None = None, dtype: Any = "float32", shape: Sequence[int] = (), **attrs: Any
    ) -> Variable:
        """A variable without a value, which `py_func` or `assign` writes; -1 in the shape is an unknown size."""
        unknown = [key for key in attrs if key not in ("persistable", "stop_gradient", "type", "lod_level")]
        if unknown or attrs.get("persistable"):
            raise ConfigError(
                f"create_var: {attrs} is not supported; use create_global_var for a persistable variable"
            )
        with self.symbols.mode:
            fake = torch.empty([max(size, 1) for size in shape], dtype=to_dtype(dtype))
        variable = Variable(self, name or names.generate_unused("_generated_var", self.vars), fake)
        variable.declared_shape = tuple(shape)
        return variable

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
        """The variables that the user feeds."""
        return {name: v for name, v in self.all_feeds().items() if companion_of(name) is None}

    def all_feeds(self) -> dict[str, Variable]:
        """The variables that are fed, with the companions of ragged ones, which the executor computes."""
        return {name: v for name, v in self.vars.items() if v.is_data}

    def persistables(self) -> dict[str, Variable]:
        return {name: v for name, v in self.vars.items() if v.persistable}

    def rank_local(self) -> set[str]:
        """The variables of the scope that differ between the ranks, though the optimizer updates them."""
        nodes = {name: self.recorder.placeholder_of.get(v.value) for name, v in self.persistables().items()}
        return {name for name, node in nodes.items() if node is not None and node.meta.get("rank_local")}

    def names_of_nodes(self) -> dict[fx.Node, str]:
        """The name of each node: that of its variable, else fx's."""
        named: dict[fx.Node, str] = {}
        for variable in self.vars.values():  # of two variables with one value, the first gives the name
            entry = self.recorder.node_of.get(variable.value)
            if isinstance(entry, fx.Node):
                named.setdefault(entry, variable.name)
            if (node := self.recorder.placeholder_of.get(variable.value)) is not None:
                named.setdefault(node, variable.name)
        named |= names.names_of_copies(self.graph, named)
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

    # --- copying --------------------------------------------------------------------------------------

    # clone.py creates Programs, so it cannot be imported at the top.

    def fused(self, build: Build | None = None) -> Program:
        """A copy after the fusions of a build (by default its own), for printing; itself without fusions."""
        from argosy.engine.ir.clone import fused

        return fused(self, self.build if build is None else build)

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


_recording: list[Program] = []


@contextmanager
def _current(program: Program) -> Iterator[None]:
    _recording.append(program)
    try:
        yield
    finally:
        _recording.pop()


def recording_program() -> Program:
    """The program that is being recorded."""
    return _recording[-1]


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
            raise ArgumentTypeError(
                f"program_guard: {what} is a {type(program).__name__}; give a static.Program"
            )
    old = _main, _startup
    _main = main_program
    _startup = startup_program or _startup
    try:
        yield
    finally:
        _main, _startup = old
