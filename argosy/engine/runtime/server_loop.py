"""Run a parameter server's program: its updates, when the service has received their gradients.

In sync mode one compiled step updates all blocks, with the mean gradients as feeds; otherwise each block has a
separate step.
"""

# SPDX-License-Identifier: Apache-2.0
import signal
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx

from argosy.engine import env, process_effects
from argosy.engine.errors import ProgramError
from argosy.engine.ir.clone import copy_nodes
from argosy.engine.ir.effects import live_nodes, mutated_inputs
from argosy.engine.ir.program import Program
from argosy.engine.log import NOTICE, logger
from argosy.engine.ops.server_ops import listen_and_serv
from argosy.engine.ps.job_plan import JobPlan
from argosy.engine.ps.rpc.settings import RpcSettings
from argosy.engine.ps.server import service
from argosy.engine.ps.server.service import Service
from argosy.engine.ps.server.state import ServerState
from argosy.engine.ps.table.text import table_folder
from argosy.engine.runtime import atomic_files
from argosy.engine.runtime.compile import Compiled, compile_program
from argosy.engine.runtime.scope import Scope
from argosy.engine.runtime.server_files import files_of


@dataclass(frozen=True)
class ShardOf:
    """The variable of the single-process program that a server's variable is a shard of."""

    name: str
    first: int | None
    """The first row of the shard; None: it is the whole variable, such as a step count."""


@dataclass
class ServerSpec:
    """The configuration of a server's program; dicts are keyed by block, `shards` by the name of any variable."""

    plan: JobPlan
    number: int
    gradients: dict[str, str] = field(default_factory=dict)
    rates: dict[str, str] = field(default_factory=dict)
    backups: dict[str, str] = field(default_factory=dict)
    masters: dict[str, str] = field(default_factory=dict)
    """float32 master copies, which are initialized from the block."""
    shards: dict[str, ShardOf] = field(default_factory=dict)
    on_trainers: tuple[str, ...] = ()
    """Variables that are local to each trainer: statistics, parameters that are not trained."""
    saved: Mapping[str, Tensor] | None = None
    """Initial values of the single-process program's variables."""
    saved_tables: Path | None = None
    """A directory with the initial rows of tables."""
    saved_files: dict[str, Any] | None = None
    """The manifest of the saved tables: number of servers, files with checksums; None: saved by Paddle."""
    only_tables: frozenset[str] = frozenset()
    """The tables to load."""


class ProgramUpdater:
    """Updates the blocks in a scope by running parts of the server's program."""

    def __init__(self, program: Program, scope: Scope) -> None:
        self._spec, self._scope = program.server_spec, scope
        self._persistables = list(program.persistables())
        self._program = program
        self._all: Compiled | None = None
        self._steps: dict[str, Compiled] = {}
        self._lock = threading.Lock()

    def values(self) -> dict[str, Tensor]:
        return {name: self._scope.get(name) for name in self._spec.gradients}

    def state(self) -> dict[str, Tensor]:
        return {name: self._scope.get(name) for name in self._persistables}

    def origins(self) -> dict[str, list[Any]]:
        """For each variable of `state` that is a shard: [name of the whole variable, first row]."""
        return {name: [o.name, o.first] for name, o in self._spec.shards.items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        for name in self._persistables:
            if name not in state:
                raise ProgramError(
                    f"the saved state has no {name!r}, it was saved by another program; load the state of this program"
                )
            self._scope.get(name).copy_(state[name])

    def initialised(self) -> None:
        """Copy the initial values of the blocks to their master copies."""
        for block, master in self._spec.masters.items():
            self._scope.get(master).copy_(self._scope.get(block))

    def apply(self, gradients: Mapping[str, Tensor], rates: Mapping[str, float]) -> None:
        wanted = self._spec.gradients
        if missing := wanted.keys() - gradients.keys():
            raise ProgramError(
                f"no trainer has sent a gradient of {sorted(missing)[0]!r}; trainers must run the whole program in "
                "every step"
            )
        for block, rate in rates.items():
            self._scope.get(self._spec.rates[block]).fill_(rate)
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
                        _part(self._program, self._spec.gradients[block]), []
                    )
        feeds = {self._spec.gradients[block]: gradient}
        if block in self._spec.backups:
            assert backup is not None, "compensation needs the value that the trainer had"
            feeds[self._spec.backups[block]] = backup
        overrides = {self._spec.rates[block]: torch.tensor([rate])} if block in self._spec.rates else {}
        self._run(self._steps[block], feeds, overrides)

    def _run(self, compiled: Compiled, feeds: Mapping[str, Tensor], overrides: Mapping[str, Tensor]) -> None:
        states = [
            overrides.get(n, s)
            for n, s in zip(compiled.states, compiled.state_values(self._scope), strict=True)
        ]
        with torch.no_grad(), torch._C._AutoDispatchBelowAutograd():
            compiled.step.function(*(feeds[feed.name] for feed in compiled.feeds), *states)


def _cut_at(program: Program, gradients: Any) -> Program:
    """Only the updates, with the mean gradients as feeds."""
    updates = copy_nodes(program, _without_listening(program), f"{program.name}_updates")
    for name in gradients:
        variable = updates.var(name)
        merged = variable.node
        if merged.op == "placeholder":
            continue
        fed = updates.recorder.placeholder(name, variable.value)
        merged.replace_all_uses_with(fed)
        parts = merged.all_input_nodes
        updates.graph.erase_node(merged)
        variable.is_data = True
        for part in parts:
            _remove(updates, part)
    return updates


def _part(program: Program, gradient: str) -> Program:
    """Only the update of one block."""
    dependents: set[fx.Node] = {program.var(gradient).node}
    for node in program.graph.nodes:
        if dependents.intersection(node.all_input_nodes):
            dependents.add(node)
    updates = {
        node
        for node in dependents
        if any(True for _ in mutated_inputs(node)) and node.meta["role"] == "optimize"
    }
    return copy_nodes(
        program, live_nodes(program.graph, updates, with_updates=False), f"{program.name}_{gradient}"
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
    """Serve this program until all trainers have left, or SIGTERM or SIGINT arrives."""
    spec: ServerSpec = program.server_spec
    updater = ProgramUpdater(program, scope)
    wanted = set(updater.state())
    scope.erase([name for name in scope.names() if name not in wanted and name in program_names(program)])
    settings = RpcSettings.from_env()
    directory = env.server_state()
    server = Service(
        spec.plan,
        spec.number,
        updater,
        settings,
        directory and Path(directory) / f"server_{spec.number}",
        drops_dead=env.drops_dead_workers(),
        stays=env.flag("ARGOSY_SERVER_STAYS"),
        snapshot_s=env.seconds("ARGOSY_SNAPSHOT_S", 60.0),
        dead_workers=env.dead_workers(),
        durability=env.text("ARGOSY_SERVER_DURABILITY", "log"),
        job=env.text("ARGOSY_JOB_ID", ""),
    )
    server.loader = lambda path: _load(saved_in(spec, path), updater, server.state)
    if not server.state.is_restored:
        _load(spec, updater, server.state)
    service.set_current(server)
    logger.log(
        NOTICE,
        "server %d listens at %s: %s, %d trainers, %d blocks, %d tables",
        spec.number,
        spec.plan.endpoints[spec.number],
        spec.plan.mode,
        spec.plan.trainers,
        len(spec.gradients),
        len(spec.plan.tables),
    )
    try:
        with _stopped_by_signals(server):
            server.serve()
    finally:
        service.set_current(None)
    logger.log(NOTICE, "server %d ends after %d steps", spec.number, server.steps.done)


def _load(spec: ServerSpec, updater: ProgramUpdater, state: ServerState) -> None:
    """Load saved values as initial values; they may have been saved by any number of servers."""
    if spec.saved is not None:
        for name, value in updater.state().items():
            shard = spec.shards.get(name)
            if shard is not None and shard.name in spec.saved:
                whole = spec.saved[shard.name]
                value.copy_(whole if shard.first is None else whole[shard.first : shard.first + len(value)])
        state.shared_init = {name: spec.saved[name] for name in spec.on_trainers if name in spec.saved}
        state.is_initialised = True
    if spec.saved_tables is not None:
        for name in sorted(spec.only_tables):
            _load_table(spec, name, state)


def _load_table(spec: ServerSpec, name: str, state: ServerState) -> None:
    assert spec.saved_tables is not None, "there is no directory to load from"
    table, servers = state.tables[name], len(spec.plan.endpoints)
    files = files_of(spec.saved_tables, name, spec.saved_files, spec.number, servers)
    table.load_text(files, lambda ids: ids.remainder(servers) == spec.number)
    logger.log(
        NOTICE,
        "server %d: table %s starts with %d rows of %s",
        *(spec.number, name, len(table), table_folder(spec.saved_tables, name)),
    )


def saved_in(spec: ServerSpec, path: Path, tables: Collection[str] | None = None) -> ServerSpec:
    """The spec with initial values from this file and the tables next to it; `tables`: only these, no dense values."""
    return replace(
        spec,
        saved=atomic_files.read_tensors(path)[0]
        if tables is None and (spec.plan.dense or path.exists())
        else None,
        saved_files=atomic_files.read_more(path) if path.exists() else None,
        saved_tables=path.parent.absolute(),
        only_tables=frozenset(tables or (table.name for table in spec.plan.tables)),
    )


def program_names(program: Program) -> Sequence[str]:
    """The names of the single-process program's variables, which this server initialized but does not store."""
    return [variable.name for variable in program.server_spec.plan.dense]


@contextmanager
def _stopped_by_signals(server: Service) -> Iterator[None]:
    """Stop the server gracefully on SIGTERM (of the launcher) and SIGINT; only the main thread may handle them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        server.stop()

    with process_effects.during("server-signals"):
        old = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)
