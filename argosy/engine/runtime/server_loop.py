"""Run a parameter server's program: its updates, when the service has received their gradients.

In sync mode one compiled step updates all blocks, with the mean gradients as feeds; otherwise each block has a
separate step.
"""

# SPDX-License-Identifier: Apache-2.0
import signal
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, fx

from argosy.engine import env, process_effects
from argosy.engine.errors import Preempted, ProgramError
from argosy.engine.ir.clone import copy_nodes
from argosy.engine.ir.effects import live_nodes, mutated_inputs
from argosy.engine.ir.program import Program
from argosy.engine.ir.roles import SavedValues, ServerRole
from argosy.engine.log import NOTICE, logger
from argosy.engine.metrics.metrics_recorder import start_server
from argosy.engine.ops.server_ops import listen_and_serv
from argosy.engine.ps.rpc.sockets import RpcSettings
from argosy.engine.ps.server import service
from argosy.engine.ps.server.service import Service
from argosy.engine.ps.server.state import ServerState
from argosy.engine.ps.table.persistence import table_folder
from argosy.engine.runtime import atomic_files
from argosy.engine.runtime.compile import Compiled, compile_program
from argosy.engine.runtime.scope import Scope
from argosy.engine.runtime.server_files import files_of


class ProgramUpdater:
    """Updates the blocks in a scope by running parts of the server's program."""

    def __init__(self, program: Program, role: ServerRole, scope: Scope) -> None:
        self._role, self._scope = role, scope
        self._persistables = list(program.persistables())
        self._program = program
        self._all: Compiled | None = None
        self._steps: dict[str, Compiled] = {}
        self._lock = threading.Lock()

    def values(self) -> dict[str, Tensor]:
        return {name: self._scope.get(name) for name in self._role.blocks}

    def state(self) -> dict[str, Tensor]:
        return {name: self._scope.get(name) for name in self._persistables}

    def origins(self) -> dict[str, list[Any]]:
        """For each variable of `state` that is a shard: [name of the whole variable, first row]."""
        return {name: [o.name, o.first] for name, o in self._role.shards.items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        for name in self._persistables:
            if name not in state:
                raise ProgramError(
                    f"the saved state has no {name!r}, it was saved by another program; load the state of this program"
                )
            self._scope.get(name).copy_(state[name])

    def initialised(self) -> None:
        """Copy the initial values of the blocks to their master copies."""
        for name, block in self._role.blocks.items():
            if block.master is not None:
                self._scope.get(block.master).copy_(self._scope.get(name))

    def apply(self, gradients: Mapping[str, Tensor], rates: Mapping[str, float]) -> None:
        wanted = {name: block.gradient for name, block in self._role.blocks.items()}
        if missing := wanted.keys() - gradients.keys():
            raise ProgramError(
                f"no trainer has sent a gradient of {sorted(missing)[0]!r}; trainers must run the whole program in "
                "every step"
            )
        for block, value in rates.items():
            rate = self._role.blocks[block].rate
            assert rate is not None, f"{block} has no learning rate"
            self._scope.get(rate).fill_(value)
        if self._all is None:
            with self._lock:
                self._all = self._all or compile_program(_cut_at(self._program, wanted.values()), [])
        by_feed = {feed: gradients[block] for block, feed in wanted.items()}
        self._run(self._all, by_feed, {})

    def apply_block(self, block: str, gradient: Tensor, rate: float, backup: Tensor | None) -> None:
        served = self._role.blocks[block]
        if block not in self._steps:
            with self._lock:
                if block not in self._steps:
                    self._steps[block] = compile_program(_part(self._program, served.gradient), [])
        feeds = {served.gradient: gradient}
        if served.backup is not None:
            assert backup is not None, "compensation needs the value that the trainer had"
            feeds[served.backup] = backup
        overrides = {served.rate: torch.tensor([rate])} if served.rate is not None else {}
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


def serve(program: Program, role: ServerRole, scope: Scope) -> None:
    """Serve this program until all trainers have left, or SIGTERM or SIGINT arrives.

    In a job with a grace period, SIGTERM first lets the trainers save a checkpoint and leave; then it raises Preempted.
    """
    updater = ProgramUpdater(program, role, scope)
    # The startup program has initialized whole variables, and the server stores only its blocks of them.
    whole = {variable.name for variable in role.plan.dense} - set(updater.state())
    scope.erase([name for name in scope.names() if name in whole])
    settings = RpcSettings.from_env()
    directory = env.server_state()
    server = Service(
        role.plan,
        role.number,
        updater,
        settings,
        directory and Path(directory) / f"server_{role.number}",
        drops_dead=env.drops_dead_workers(),
        stays=env.flag("ARGOSY_SERVER_STAYS"),
        snapshot_s=env.seconds("ARGOSY_SNAPSHOT_S", 60.0),
        dead_workers=env.dead_workers(),
        durability=env.text("ARGOSY_SERVER_DURABILITY", "log"),
        job=env.text("ARGOSY_JOB_ID", ""),
        recorder=start_server(role.number, len(role.plan.endpoints)),
    )
    server.loader = lambda path: _load(saved_in(role, path), updater, server.state)
    if not server.snapshots.is_restored:
        _load(role, updater, server.state)
    service.set_current(server)
    logger.log(
        NOTICE,
        "server %d listens at %s: %s, %d trainers, %d blocks, %d tables",
        role.number,
        role.plan.endpoints[role.number],
        role.plan.mode,
        role.plan.trainers,
        len(role.blocks),
        len(role.plan.tables),
    )
    try:
        with _stopped_by_signals(server):
            server.serve()
    finally:
        service.set_current(None)
    logger.log(NOTICE, "server %d ends after %d steps", role.number, server.steps.done)
    if server.is_preempted and (code := env.requeue_code()) is not None:
        raise Preempted(code, "preempted: the workers have saved a checkpoint")


def _load(role: ServerRole, updater: ProgramUpdater, state: ServerState) -> None:
    """Load saved values as initial values, if the role has any."""
    if role.saved is None:
        return
    dense = role.saved.dense
    if dense is not None:
        for name, value in updater.state().items():
            shard = role.shards.get(name)
            if shard is not None and shard.name in dense:
                whole = dense[shard.name]
                value.copy_(whole if shard.first is None else whole[shard.first : shard.first + len(value)])
        state.shared_init = {name: dense[name] for name in role.on_trainers if name in dense}
        state.is_initialised = True
    for name in sorted(role.saved.tables):
        _load_table(role, role.saved, name, state)


def _load_table(role: ServerRole, saved: SavedValues, name: str, state: ServerState) -> None:
    table, servers = state.tables[name], len(role.plan.endpoints)
    files = files_of(saved.folder, name, saved.files, role.number, servers)
    table.load_text(files, lambda ids: ids.remainder(servers) == role.number)
    logger.log(
        NOTICE,
        "server %d: table %s starts with %d rows of %s",
        *(role.number, name, len(table), table_folder(saved.folder, name)),
    )


def saved_in(role: ServerRole, path: Path, tables: Collection[str] | None = None) -> ServerRole:
    """The role with initial values from this file and the tables next to it; `tables`: only these, no dense values."""
    reads_dense = tables is None and (role.plan.dense or path.exists())
    saved = SavedValues(
        dense=atomic_files.read_tensors(path)[0] if reads_dense else None,
        folder=path.parent.absolute(),
        files=atomic_files.read_more(path) if path.exists() else None,
        tables=frozenset(tables or (table.name for table in role.plan.tables)),
    )
    return replace(role, saved=saved)


@contextmanager
def _stopped_by_signals(server: Service) -> Iterator[None]:
    """Stop the server gracefully on SIGTERM (of the launcher) and SIGINT; only the main thread may handle them.

    With a grace period, SIGTERM while trainers are live preempts the job, and does not stop the server.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    has_grace_period = env.requeue_code() is not None

    def stop(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM and has_grace_period and server.membership.live:
            server.request_preemption()
        else:
            server.stop()

    with process_effects.during("server-signals"):
        old = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)
