"""Run a parameter server's program: its updates, whenever the service has the gradients for them.

In sync mode one compiled step does the updates of all blocks, with the mean gradients as feeds; else each block has
a step of its own.
"""

# SPDX-License-Identifier: Apache-2.0
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx

from argosy.engine import env
from argosy.engine.errors import ProgramError
from argosy.engine.ir.clone import copy_nodes
from argosy.engine.ir.effects import changed_inputs, needed
from argosy.engine.ir.program import Program
from argosy.engine.log import NOTICE, logger
from argosy.engine.ops.serve import listen_and_serv
from argosy.engine.ps.plan import Plan
from argosy.engine.ps.rpc.settings import Settings
from argosy.engine.ps.server import service
from argosy.engine.ps.server.service import Service
from argosy.engine.runtime.compile import Compiled, compile_program
from argosy.engine.runtime.scope import Scope


@dataclass(frozen=True)
class Origin:
    """Which variable of the single-process program a server's variable is, or is a part of."""

    name: str
    first: int | None
    """The first of its rows; None: it is the whole, as a count of steps is."""


@dataclass
class Serving:
    """What a server's program is about; entries are by the names of blocks, `origins` by any variable's."""

    plan: Plan
    number: int
    gradients: dict[str, str] = field(default_factory=dict)
    rates: dict[str, str] = field(default_factory=dict)
    backups: dict[str, str] = field(default_factory=dict)
    masters: dict[str, str] = field(default_factory=dict)
    """float32 copies that begin as the block."""
    origins: dict[str, Origin] = field(default_factory=dict)
    on_trainers: tuple[str, ...] = ()
    """Variables that each trainer has for itself: statistics, parameters that are not trained."""
    saved: Mapping[str, Tensor] | None = None
    """Values of the whole program's variables to begin with."""
    saved_tables: Path | None = None
    """A directory of saved tables to begin with."""
    only_tables: frozenset[str] = frozenset()
    """Which of them."""


class ProgramUpdater:
    """Updates the blocks in a scope by running parts of the server's program."""

    def __init__(self, program: Program, scope: Scope) -> None:
        self._serving, self._scope = program.serving, scope
        self._persistables = list(program.persistables())
        self._program = program
        self._all: Compiled | None = None
        self._steps: dict[str, Compiled] = {}
        self._lock = threading.Lock()

    def values(self) -> dict[str, Tensor]:
        return {name: self._scope.get(name) for name in self._serving.gradients}

    def state(self) -> dict[str, Tensor]:
        return {name: self._scope.get(name) for name in self._persistables}

    def origins(self) -> dict[str, list[Any]]:
        """Of each variable of `state` that is a part of another: [name there, first row]."""
        return {name: [o.name, o.first] for name, o in self._serving.origins.items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        for name in self._persistables:
            if name not in state:
                raise ProgramError(f"the saved state has no {name!r}; it was saved by another program")
            self._scope.get(name).copy_(state[name])

    def initialised(self) -> None:
        """Blocks have got their first values: what begins as a copy of them is copied."""
        for block, master in self._serving.masters.items():
            self._scope.get(master).copy_(self._scope.get(block))

    def apply(self, gradients: Mapping[str, Tensor], rates: Mapping[str, float]) -> None:
        wanted = self._serving.gradients
        if missing := wanted.keys() - gradients.keys():
            raise ProgramError(
                f"no trainer has sent a gradient of {sorted(missing)[0]!r}; trainers must run the whole program in "
                "every step"
            )
        for block, rate in rates.items():
            self._scope.get(self._serving.rates[block]).fill_(rate)
        if self._all is None:
            with self._lock:
                self._all = self._all or compile_program(_cut_at(self._program, wanted.values()), [])
        by_feed = {feed: gradients[block] for block, feed in wanted.items()}
        self._run(self._all, by_feed, {})

    def apply_block(self, block: str, gradient: Tensor, rate: float, backup: Tensor | None) -> None:
        if block not in self._steps:
            with self._lock:
                if block not in self._steps:
                    self._steps[block] = compile_program(
                        _part(self._program, self._serving.gradients[block]), []
                    )
        feeds = {self._serving.gradients[block]: gradient}
        if block in self._serving.backups:
            assert backup is not None, "compensation needs what the trainer had"
            feeds[self._serving.backups[block]] = backup
        own = {self._serving.rates[block]: torch.tensor([rate])} if block in self._serving.rates else {}
        self._run(self._steps[block], feeds, own)

    def _run(self, compiled: Compiled, feeds: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
        states = [
            own.get(n, s) for n, s in zip(compiled.states, compiled.state_values(self._scope), strict=True)
        ]
        with torch.no_grad(), torch._C._AutoDispatchBelowAutograd():
            compiled.step.function(*(feeds[feed.name] for feed in compiled.feeds), *states)


def _cut_at(program: Program, gradients: Any) -> Program:
    """The updates alone: the mean gradients are fed."""
    made = copy_nodes(program, _without_listening(program), f"{program.name}_updates")
    for name in gradients:
        variable = made.var(name)
        merged = variable.node
        if merged.op == "placeholder":
            continue
        fed = made.recorder.placeholder(name, variable.value)
        merged.replace_all_uses_with(fed)
        parts = merged.all_input_nodes
        made.graph.erase_node(merged)
        variable.is_data = True
        for part in parts:
            _remove(made, part)
    return made


def _part(program: Program, gradient: str) -> Program:
    """The update of one block alone."""
    start = program.var(gradient).node
    reached: set[fx.Node] = {start}
    for node in program.graph.nodes:
        if reached.intersection(node.all_input_nodes):
            reached.add(node)
    updates = {
        node
        for node in reached
        if any(True for _ in changed_inputs(node)) and node.meta["role"] == "optimize"
    }
    return copy_nodes(
        program, needed(program.graph, updates, with_updates=False), f"{program.name}_{gradient}"
    )


def _without_listening(program: Program) -> list[fx.Node]:
    return [node for node in program.graph.nodes if node.target is not listen_and_serv]


def _remove(program: Program, placeholder: fx.Node) -> None:
    if placeholder.users:
        return
    for name, variable in list(program.vars.items()):
        if program.recorder.placeholder_of.get(variable.value) is placeholder:
            del program.vars[name]
    program.graph.erase_node(placeholder)


def serve(program: Program, scope: Scope) -> None:
    """Be the server of this program until all trainers have left, or SIGTERM or SIGINT comes."""
    serving: Serving = program.serving
    updater = ProgramUpdater(program, scope)
    wanted = set(updater.state())
    scope.erase([name for name in scope.names() if name not in wanted and name in program_names(program)])
    settings = Settings.from_env()
    directory = env.server_state()
    made = Service(
        serving.plan,
        serving.number,
        updater,
        settings,
        directory and Path(directory) / f"server_{serving.number}",
        drops_dead=env.drops_dead_workers(),
        stays=env.flag("ARGOSY_SERVER_STAYS"),
        snapshot_s=env.seconds("ARGOSY_SNAPSHOT_S", 60.0),
        dead_workers=env.dead_workers(),
    )
    if not made.state.is_restored:
        _load(serving, updater, made)
    service.set_current(made)
    logger.log(
        NOTICE,
        "server %d listens at %s: %s, %d trainers, %d blocks, %d tables",
        serving.number,
        serving.plan.endpoints[serving.number],
        serving.plan.mode,
        serving.plan.trainers,
        len(serving.gradients),
        len(serving.plan.tables),
    )
    try:
        with _stopped_by_signals(made):
            made.serve()
    finally:
        service.set_current(None)
    logger.log(NOTICE, "server %d ends after %d steps", serving.number, made.steps.done)


def _load(serving: Serving, updater: ProgramUpdater, made: Service) -> None:
    """Begin with what was saved, by however many servers."""
    if serving.saved is not None:
        for name, value in updater.state().items():
            origin = serving.origins.get(name)
            if origin is not None and origin.name in serving.saved:
                found = serving.saved[origin.name]
                value.copy_(
                    found if origin.first is None else found[origin.first : origin.first + len(value)]
                )
        made.state.kept = {name: serving.saved[name] for name in serving.on_trainers if name in serving.saved}
        made.state.is_initialised = True
    if serving.saved_tables is not None:
        servers = len(serving.plan.endpoints)
        for name in sorted(serving.only_tables):
            table = made.state.tables[name]
            path = serving.saved_tables / f"{name}_txt"
            table.load_text(path, lambda ids: ids.remainder(servers) == serving.number)
            logger.log(
                NOTICE,
                "server %d: table %s begins with %d rows of %s",
                serving.number,
                name,
                len(table),
                path,
            )


def program_names(program: Program) -> Sequence[str]:
    """The names of the single-process program's variables that this server has drawn and does not keep."""
    return [variable.name for variable in program.serving.plan.dense]


@contextmanager
def _stopped_by_signals(made: Service) -> Iterator[None]:
    """SIGTERM (the launcher's) and SIGINT end the server in order; only a main thread may catch them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        made.stop()

    old = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
