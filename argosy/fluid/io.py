"""fluid.io: saving and loading with the arguments of Paddle 1.x; the work is done in `argosy.static.io`.

The files are safetensors and JSON, one file where Paddle 1.x writes one for each variable.
"""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

from argosy.engine.data.readers import (
    batch,
    buffered,
    chain,
    compose,
    firstn,
    map_readers,
    shuffle,
    xmap_readers,
)
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program, default_main_program
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.ps.trainer import trainer
from argosy.framework.missing import missing
from argosy.io import DataLoader
from argosy.static.io import (
    VARS_FILE,
    Chosen,
    load,
    load_program_state,
    load_vars,
    names_of,
    normalize_program,
    read_inference,
    save,
    save_vars,
    set_program_state,
    write_inference,
)

__all__ = [
    "DataLoader",
    "batch",
    "buffered",
    "chain",
    "compose",
    "firstn",
    "load",
    "load_inference_model",
    "load_params",
    "load_persistables",
    "load_program_state",
    "load_vars",
    "map_readers",
    "save",
    "save_inference_model",
    "save_params",
    "save_persistables",
    "save_vars",
    "set_program_state",
    "shuffle",
    "xmap_readers",
]


def save_inference_model(
    dirname: str,
    feeded_var_names: list[str],
    target_vars: Chosen,
    executor: Any = None,
    main_program: Program | None = None,
    model_filename: str | None = None,
    params_filename: str | None = None,
    export_for_deployment: bool = True,
    program_only: bool = False,
) -> list[str]:
    """Write `dirname`/__model__ and __params__ for inference; returns the names of the targets."""
    if not export_for_deployment:
        raise ConfigError(
            "export_for_deployment=False is not supported; fluid.io.save keeps the whole program"
        )
    program = main_program or default_main_program()
    made = normalize_program(program, feeded_var_names, target_vars)
    model, params = _files(dirname, model_filename, params_filename)
    write_inference(made, feeded_var_names, target_vars, model, None if program_only else params)
    return names_of(target_vars)


def load_inference_model(
    dirname: str,
    executor: Any = None,
    model_filename: str | None = None,
    params_filename: str | None = None,
    pserver_endpoints: Any = None,
) -> list[Any]:
    """[program, names of the feeds, variables to fetch]; the values are put into the global scope."""
    if pserver_endpoints is not None:
        raise ConfigError("pserver_endpoints is not supported here; load the model without them")
    return read_inference(*_files(dirname, model_filename, params_filename))


def save_params(
    executor: Any, dirname: str, main_program: Program | None = None, filename: str | None = None
) -> None:
    """Write the parameters alone; a batch_norm's statistics, parameters in Paddle, are persistables here."""
    program = default_main_program() if main_program is None else main_program
    if program.remote is not None and program.remote[0].tables:
        raise ConfigError(
            f"the table {program.remote[0].tables[0].name!r} lies on the servers, and would be missing; use "
            "save_persistables, which lets each server write its part"
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
    """Write all that the scope keeps for the program: parameters, statistics, optimizer state.

    Of a transpiled program also what the parameter servers keep; each of them writes its part of the tables.
    """
    program = default_main_program() if main_program is None else main_program
    if program.remote is not None:
        from argosy.distributed.ps.saving import save_persistables as save_from_servers  # it imports fluid

        save_from_servers(trainer.current(), program, Path(dirname, filename or VARS_FILE))
        return
    save_vars(executor, dirname, main_program, filename=filename)


def load_persistables(
    executor: Any, dirname: str, main_program: Program | None = None, filename: str | None = None
) -> None:
    """Read all that the program needs in the scope.

    Of a transpiled job each server reads its part, of a file that any number of servers wrote, before it serves
    (`main_program` is its own program); a trainer reads what it has for itself.
    """
    program = default_main_program() if main_program is None else main_program
    path = Path(dirname, filename or VARS_FILE)
    if program.serving is not None or program.remote is not None:
        from argosy.distributed.ps import saving  # it imports fluid

        if program.serving is not None:
            saving.load_on_server(program, path)
        else:
            saving.load_on_trainer(trainer.current(), program, path)
        return
    load_vars(executor, dirname, main_program, filename=filename)


def _files(dirname: str, model: str | None, params: str | None) -> tuple[Path, Path]:
    return Path(dirname, model or "__model__"), Path(dirname, params or "__params__")


def _is_parameter(variable: Variable) -> bool:
    return isinstance(variable, Parameter)


__getattr__ = missing(__name__, globals())
