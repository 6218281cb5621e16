"""fluid.io: saving and loading with the arguments of Paddle 1.x; implemented by `argosy.static.io`.

The files are safetensors and JSON, one file where Paddle 1.x writes one for each variable.
"""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

from argosy.distributed.ps import saving
from argosy.engine.data.process_readers import multiprocess_reader
from argosy.engine.data.readers import (
    ComposeNotAligned,
    batch,
    buffered,
    cache,
    chain,
    compose,
    firstn,
    map_readers,
    shuffle,
    xmap_readers,
)
from argosy.engine.errors import ConfigError, UnsupportedError
from argosy.engine.ir.program import Program
from argosy.engine.ir.roles import ServerRole, TrainerRole
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.ps.trainer import trainer
from argosy.fluid.reader import PyReader
from argosy.framework.missing import missing
from argosy.io import DataLoader
from argosy.static.io import (
    VARS_FILE,
    Variables,
    inference_files,
    load,
    load_program_state,
    load_vars,
    program_of,
    read_inference,
    save,
    save_vars,
    set_program_state,
    write_inference_model,
)

__all__ = [
    "ComposeNotAligned",
    "DataLoader",
    "PyReader",
    "batch",
    "buffered",
    "cache",
    "chain",
    "compose",
    "firstn",
    "get_program_parameter",
    "get_program_persistable_vars",
    "load",
    "load_inference_model",
    "load_params",
    "load_persistables",
    "load_program_state",
    "load_vars",
    "map_readers",
    "multiprocess_reader",
    "save",
    "save_inference_model",
    "save_params",
    "save_persistables",
    "save_vars",
    "set_program_state",
    "shuffle",
    "xmap_readers",
]


def get_program_parameter(program: Program) -> list[Parameter]:
    """The parameters of a program."""
    return program.all_parameters()


def get_program_persistable_vars(program: Program) -> list[Variable]:
    """The variables of a program that the scope keeps between runs."""
    return [variable for variable in program.list_vars() if variable.persistable]


def save_inference_model(
    dirname: str,
    feeded_var_names: list[str],
    target_vars: Variables,
    executor: Any = None,
    main_program: Program | None = None,
    model_filename: str | None = None,
    params_filename: str | None = None,
    export_for_deployment: bool = True,
    program_only: bool = False,
) -> list[str]:
    """Write `dirname`/__model__ and __params__ for inference; returns the names of the targets."""
    if not export_for_deployment:
        raise UnsupportedError(
            "export_for_deployment=False is not supported; fluid.io.save saves the whole program"
        )
    files = inference_files(dirname, model_filename, params_filename)
    return write_inference_model(files, feeded_var_names, target_vars, main_program, program_only)


def load_inference_model(
    dirname: str,
    executor: Any = None,
    model_filename: str | None = None,
    params_filename: str | None = None,
    pserver_endpoints: Any = None,
) -> list[Any]:
    """[program, names of the feeds, variables to fetch]; the values are put into the global scope."""
    if pserver_endpoints is not None:
        raise UnsupportedError("pserver_endpoints is not supported here; load the model without them")
    return read_inference(*inference_files(dirname, model_filename, params_filename))


def save_params(
    executor: Any, dirname: str, main_program: Program | None = None, filename: str | None = None
) -> None:
    """Write only the parameters; a batch_norm's statistics (parameters in Paddle) are persistables here."""
    program = program_of(main_program)
    if isinstance(program.role, TrainerRole) and program.role.plan.tables:
        raise ConfigError(
            f"the table {program.role.plan.tables[0].name!r} is on the servers and would be missing; use "
            "save_persistables, where each server writes its shard"
        )
    save_vars(executor, dirname, main_program, predicate=_is_parameter, filename=filename)


def load_params(
    executor: Any, dirname: str, main_program: Program | None = None, filename: str | None = None
) -> None:
    """Read the parameters, from `save_params` or `save_persistables`."""
    load_vars(executor, dirname, main_program, predicate=_is_parameter, filename=filename)


def save_persistables(
    executor: Any, dirname: str, main_program: Program | None = None, filename: str | None = None
) -> None:
    """Write all persistable variables of the program: parameters, statistics, optimizer state.

    For a transpiled program, this includes the variables on the parameter servers; each server writes its shard of the
    tables.
    """
    program = program_of(main_program)
    if isinstance(program.role, TrainerRole):
        saving.save_persistables(trainer.current(), program, Path(dirname, filename or VARS_FILE))
        return
    save_vars(executor, dirname, main_program, filename=filename)


def load_persistables(
    executor: Any, dirname: str, main_program: Program | None = None, filename: str | None = None
) -> None:
    """Read all persistable variables of the program into the scope.

    In a transpiled job each server calls it with its program before it serves, and reads its shard; any number of
    servers may have written the files. A trainer reads the variables that are not on servers.
    """
    program = program_of(main_program)
    path = Path(dirname, filename or VARS_FILE)
    match program.role:
        case ServerRole():
            saving.load_on_server(program, path)
        case TrainerRole():
            saving.load_on_trainer(trainer.current(), program, path)
        case _:
            load_vars(executor, dirname, main_program, filename=filename)


def _is_parameter(variable: Variable) -> bool:
    return isinstance(variable, Parameter)


__getattr__ = missing(__name__, globals())
