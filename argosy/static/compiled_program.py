"""CompiledProgram: a program and its build and execution strategies."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Self, TypeVar

from argosy.engine.collective import world
from argosy.engine.errors import ArgumentTypeError, ConfigError, FetchError, nearest
from argosy.engine.ir.build import Build
from argosy.engine.ir.program import Program
from argosy.engine.log import logger
from argosy.framework.place import Place
from argosy.static.fusions import fusions, switched_off
from argosy.static.strategies import BuildStrategy, ExecutionStrategy

_Strategy = TypeVar("_Strategy", BuildStrategy, ExecutionStrategy)


class CompiledProgram:
    """A program with build and execution strategies, which Executor.run accepts in place of a program."""

    def __init__(self, program_or_graph: Program, build_strategy: BuildStrategy | None = None) -> None:
        if not isinstance(program_or_graph, Program):
            raise ArgumentTypeError(
                f"CompiledProgram was given a {type(program_or_graph).__name__}; give a static.Program"
            )
        self.program = program_or_graph
        self.build_strategy = _settings("build_strategy", build_strategy, BuildStrategy)
        self.exec_strategy = ExecutionStrategy()
        self.is_data_parallel = False
        self.build: Build | None = None
        """The compile options; None: those of the program."""
        if build_strategy is not None:
            self._compile_with(self.build_strategy)

    def with_data_parallel(
        self,
        loss_name: str | None = None,
        build_strategy: BuildStrategy | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        share_vars_from: "CompiledProgram | None" = None,
        places: "Place | list[Place] | tuple[Place, ...] | None" = None,
    ) -> Self:
        """Run data-parallel. One process has one place, fleetrun starts the others; the scope holds the variables."""
        if self.is_data_parallel:
            raise ConfigError(
                "with_data_parallel was already called on this CompiledProgram; create another CompiledProgram"
            )
        _check_loss(self.program, loss_name)
        _check_places(places)
        if share_vars_from is not None and not isinstance(share_vars_from, CompiledProgram):
            raise ArgumentTypeError(
                f"share_vars_from is a {type(share_vars_from).__name__}; use a CompiledProgram, or leave it out: "
                "programs that run in one scope share its variables anyway"
            )
        given = self.build_strategy if build_strategy is None else build_strategy
        build = _settings("build_strategy", given, BuildStrategy)
        execution = _settings("exec_strategy", exec_strategy, ExecutionStrategy)
        self.build_strategy, self.exec_strategy, self.is_data_parallel = build, execution, True
        if build_strategy is not None:
            self._compile_with(build)
        return self

    def _compile_with(self, strategy: BuildStrategy) -> None:
        """Compile with this strategy, and freeze it."""
        draw(self.program, strategy, "_original_graph")
        self.build = build_of(self.program, strategy)
        draw(self.program.fused(self.build), strategy, "_fused_graph")
        strategy.freeze()

    def __str__(self) -> str:
        return str(self.program.fused(self.build))

    def __repr__(self) -> str:
        return f"CompiledProgram({self.program.name!r}, {self.build_strategy!r})"


def _settings(what: str, given: _Strategy | None, kind: type[_Strategy]) -> _Strategy:
    if given is not None and not isinstance(given, kind):
        raise ArgumentTypeError(f"{what} is {given!r}; use an object of {kind.title}")
    return kind() if given is None else given


def _check_loss(program: Program, name: str | None) -> None:
    if name is not None and name not in program.vars:
        raise FetchError(f"loss_name {name!r} is not in {program.name!r}{nearest(str(name), program.vars)}")


def _check_places(places: object) -> None:
    listed = places if isinstance(places, list | tuple) else [] if places is None else [places]
    wrong = [place for place in listed if not isinstance(place, Place)]
    if wrong:
        raise ConfigError(f"places has {wrong[0]!r}; use CPUPlace() or CUDAPlace(0)")
    if len(listed) > 1:
        raise ConfigError(
            f"places has {len(listed)} places, but one process has one; start a process for each: "
            f"fleetrun --nproc_per_node={len(listed)} script.py"
        )


def configure(program: Program, strategy: BuildStrategy) -> None:
    """Set the program's compile options from the build strategy."""
    program.build = build_of(program, strategy)
    program.touch()
    draw(program, strategy, "_fused_graph")


def build_of(program: Program, strategy: BuildStrategy) -> Build:
    """The compile options of the program for this strategy."""
    for parameter in program.all_parameters():
        if parameter.is_sparse:
            program.recorder.placeholder_of[parameter.value].meta["is_table"] = True
    if strategy.compiler and program.build.recompute is not None:
        raise ConfigError(
            f"build_strategy.compiler={strategy.compiler!r} and recompute are both on; Inductor merges equal "
            "computations of forward and backward, which undoes recompute: turn one of them off"
        )
    if strategy.compiler and strategy.memory_optimize:
        logger.warning(
            "memory_optimize=True has no effect with compiler='inductor', which plans memory itself"
        )
    return Build(
        without_passes=switched_off(strategy) | _without(strategy),
        fusions=fusions(strategy),
        autocast=program.build.autocast,
        recompute=program.build.recompute,
        compiler=strategy.compiler,
        memory_optimize=strategy.memory_optimize,
    )


def _without(strategy: BuildStrategy) -> set[str]:
    """The default passes, other than fusions, that are switched off."""
    fields = {"in_place": strategy.enable_inplace, "divide_updates": strategy.divide_updates}
    return {name for name, is_on in fields.items() if not is_on}


def draw(program: Program, build: BuildStrategy, suffix: str) -> None:
    """Write the graph as a DOT file to `debug_graphviz_path` + `suffix`, on rank 0 only."""
    if build.debug_graphviz_path and world().rank == 0:
        Path(build.debug_graphviz_path + suffix).write_text(program.to_dot())
