"""Save and load programs and the values of the scope.

    save / load                                 a program in training, to resume it
    save_inference_model / load_…               the part that computes the fetches from the feeds
    save_vars / load_vars                       selected variables in one file
    load_program_state / set_program_state      values as a dict, for transfer

The suffixes are Paddle's, the formats are not: `.pdmodel` is JSON, the others are safetensors, all with
checksums and without pickle. Every file is replaced atomically: a crash leaves the old file.
"""

# SPDX-License-Identifier: Apache-2.0
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx

from argosy.engine.data.arrays import to_tensor
from argosy.engine.errors import (
    ArgosyError,
    ArgumentTypeError,
    ConfigError,
    CorruptFileError,
    ScopeError,
    nearest,
)
from argosy.engine.ir.clone import copy_nodes
from argosy.engine.ir.dtypes import dtype_name
from argosy.engine.ir.effects import mutated_inputs, storage
from argosy.engine.ir.program import Program, default_main_program
from argosy.engine.ir.ragged import all_lengths_of, companion_of
from argosy.engine.ir.serialize import from_dict, to_dict
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.log import logger
from argosy.engine.ops.trainer_ops import lookup_table
from argosy.engine.runtime import atomic_files
from argosy.engine.runtime.scope import global_scope
from argosy.static.compiled_program import CompiledProgram
from argosy.static.io_divided import reject_divided, reject_stale, rows_of_this_rank

_SUFFIXES = (".pdparams", ".pdopt", ".pdmodel", ".pdiparams")
Variables = Variable | str | Sequence[Variable | str]
Values = dict[str, torch.Tensor]


# --- a program in training ----------------------------------------------------------------------------


def save(program: Program, model_path: str, protocol: int = 4) -> None:
    """Write `model_path`.pdparams (variables that forward reads), .pdopt (the other persistables) and .pdmodel.

    Parameters and statistics (a batch_norm's running mean, a parameter in Paddle) go into .pdparams; variables
    that only the updates read, into .pdopt; the program, into .pdmodel. Not saved: a learning-rate scheduler (its
    current rate is, as a variable) and the state of random generators. `protocol` is Paddle's for pickle, which is
    not used here; it has no effect.
    """
    program, prefix = program_of(program), _prefix(model_path)
    reject_divided("save", program)
    parameters, others = _split(program)
    first, second = _from_scope(parameters), _from_scope(others)
    sums = atomic_files.checksums(first), atomic_files.checksums(second)
    saved = atomic_files.save_id(*sums)
    atomic_files.replace_files(
        {
            Path(f"{prefix}.pdparams"): atomic_files.tensor_writer(first, sums[0], saved),
            Path(f"{prefix}.pdopt"): atomic_files.tensor_writer(second, sums[1], saved),
            Path(f"{prefix}.pdmodel"): atomic_files.bytes_writer(_model(program, saved)),
        }
    )


def load(program: Program, model_path: str, executor: Any = None, var_list: Variables | None = None) -> None:
    """Load the values of `save` into the global scope; if an error is raised, no variable has changed.

    Names, shapes and dtypes must match the program (Paddle only warns about unknown names). `var_list` loads only
    these variables. A program without optimizer variables does not read the .pdopt.
    """
    program, prefix = program_of(program), _prefix(model_path)
    wanted = program.persistables()
    if var_list is not None:
        wanted = {v.name: v for v in _variables(program, var_list, "var_list")}
    path, optimizer_path = Path(f"{prefix}.pdparams"), Path(f"{prefix}.pdopt")
    values, saved = atomic_files.read_tensors(path)
    if not wanted.keys() <= values.keys():
        values |= _rest(path, optimizer_path, saved)
    values = rows_of_this_rank(program, values)
    _check(path, wanted, values, extra_allowed=var_list is not None)
    _to_scope({name: values[name] for name in wanted})


def _rest(path: Path, optimizer_path: Path, saved: str) -> Values:
    """The values of the .pdopt that was saved with `path`; empty if there is none."""
    atomic_files.finish(optimizer_path, lambda p: atomic_files.read_tensors(p)[1] == saved)
    if not optimizer_path.is_file():
        return {}
    values, optimizer_save = atomic_files.read_tensors(optimizer_path)
    if optimizer_save != saved:
        raise CorruptFileError(
            f"{path} and {optimizer_path.name} are from different saves; save again, or take both from one "
            "copy (load_program_state of one file and set_program_state load it alone)"
        )
    return values


def load_program_state(model_path: str, var_list: Variables | None = None) -> dict[str, Any]:
    """The values of `save` by name, as NumPy arrays (bfloat16, which NumPy lacks, as torch tensors).

    `model_path` may also be a single file. `var_list`: only these, Variables or names.
    """
    if Path(model_path).is_file():
        values, _ = atomic_files.read_tensors(Path(model_path))
    else:
        path = Path(f"{model_path}.pdparams")
        values, saved = atomic_files.read_tensors(path)
        values |= _rest(path, Path(f"{model_path}.pdopt"), saved)
    if var_list is not None:
        names = [v if isinstance(v, str) else v.name for v in _as_list(var_list)]
        for name in names:
            if name not in values:
                raise ConfigError(f"{model_path} has no variable {name!r}{nearest(name, values)}")
        values = {name: values[name] for name in names}
    return {name: v if v.dtype is torch.bfloat16 else v.numpy() for name, v in values.items()}


def set_program_state(program: Program, state_dict: Mapping[str, Any]) -> None:
    """Set variables of the program from a dict; variables that are not in it keep their values.

    A wrong shape or dtype raises; unknown names are skipped with a warning, as in Paddle.
    """
    program = program_of(program)
    wanted = program.persistables()
    unknown = [name for name in state_dict if name not in wanted]
    values = {name: to_tensor(v, name, copy=True) for name, v in state_dict.items() if name in wanted}
    values = rows_of_this_rank(program, values)
    _check("state_dict", {name: wanted[name] for name in values}, values)
    _to_scope(values)
    if unknown:
        logger.warning("set_program_state: skipped %s: not in %s", ", ".join(unknown), program.name)


# --- for inference ------------------------------------------------------------------------------------


def normalize_program(program: Program, feed_vars: Variables, fetch_vars: Variables) -> Program:
    """A copy for testing, with only the nodes that compute `fetch_vars` from `feed_vars`."""
    program = program_of(program)
    test = program.clone(for_test=True)
    feeds = _variables(test, _as_list(feed_vars), "feed_vars")
    fetches = _variables(test, _as_list(fetch_vars), "fetch_vars")
    if not fetches:
        raise ConfigError("fetch_vars is empty; give the variables to compute")
    for feed in feeds:
        if not feed.is_data:
            raise ConfigError(f"feed_vars: {feed.name!r} is computed, not fed; give variables of static.data")
    lengths = [level for v in fetches for level in all_lengths_of(v)]
    needed = _dependencies_of(test.graph, {v.node for v in (*fetches, *lengths)})
    needed |= {v.node for feed in feeds for v in (feed, *all_lengths_of(feed))}
    named = test.names_of_nodes()
    given = {v.name for v in feeds}
    needed_feeds = [named[n] for n in needed if n.op == "placeholder" and test.vars[named[n]].is_data]
    missing = [name for name in needed_feeds if (companion_of(name) or name) not in given]
    if missing:
        raise ConfigError(f"the fetches need the feed {missing[0]!r} too; add it to feed_vars, or fetch less")
    return copy_nodes(test, [n for n in test.graph.nodes if n in needed], f"{program.name}_inference")


def save_inference_model(
    path_prefix: str,
    feed_vars: Variables,
    fetch_vars: Variables,
    executor: Any = None,
    program: Program | None = None,
) -> None:
    """Write `path_prefix`.pdmodel and .pdiparams: the program from feeds to fetches, and its values.

    `program`: by default the one that the fetches belong to (Paddle: the default main program).
    """
    prefix = _prefix(path_prefix)
    inference = _inference(feed_vars, fetch_vars, program)
    write_inference(inference, feed_vars, fetch_vars, Path(f"{prefix}.pdmodel"), Path(f"{prefix}.pdiparams"))


def load_inference_model(
    path_prefix: str,
    executor: Any = None,
    model_filename: str | None = None,
    params_filename: str | None = None,
) -> list[Any]:
    """[program, names of the feeds, variables to fetch]; the values are put into the global scope.

    The model's code is not needed. With file names, `path_prefix` is the folder that they are in.
    """
    if model_filename is None and params_filename is None:
        prefix = _prefix(path_prefix)
        return read_inference(Path(f"{prefix}.pdmodel"), Path(f"{prefix}.pdiparams"))
    if model_filename is None or params_filename is None:
        raise ConfigError("only one of model_filename and params_filename is given; give both, or none")
    return read_inference(Path(path_prefix, model_filename), Path(path_prefix, params_filename))


def serialize_program(feed_vars: Variables, fetch_vars: Variables, program: Program | None = None) -> bytes:
    """The bytes that `save_inference_model` writes as .pdmodel."""
    return _model(_inference(feed_vars, fetch_vars, program), "", names_of(feed_vars), names_of(fetch_vars))


def deserialize_program(data: bytes) -> Program:
    """The program in the bytes of a .pdmodel, of `save` (for training) or of `save_inference_model`."""
    return _program_of(atomic_files.unseal(data, "the serialized program"), "the serialized program")


def _reject_remote(program: Program) -> None:
    """Raise if the tables of a model are on parameter servers, where a saved model could not look them up."""
    if program.graph.find_nodes(op="call_function", target=lookup_table):
        raise ConfigError(
            f"{program.name} looks tables up on the parameter servers, so a saved model would need the servers; use "
            "fleet.save_inference_model, which writes the tables into the model"
        )


def write_inference(
    program: Program, feed_vars: Variables, fetch_vars: Variables, model: Path, params: Path | None
) -> None:
    """Write a normalized program and, unless `params` is None, its values."""
    _reject_remote(program)
    values = _from_scope(program.persistables()) if params is not None else {}
    sums = atomic_files.checksums(values)
    saved = atomic_files.save_id(sums) if params is not None else ""
    files = {
        model: atomic_files.bytes_writer(_model(program, saved, names_of(feed_vars), names_of(fetch_vars)))
    }
    if params is not None:
        files = {params: atomic_files.tensor_writer(values, sums, saved), **files}
    atomic_files.replace_files(files)


def write_inference_model(
    files: tuple[Path, Path],
    feed_vars: Variables,
    fetch_vars: Variables,
    program: Program | None,
    program_only: bool = False,
) -> list[str]:
    """Write the part of a program from feeds to fetches into `inference_files`; returns the names of the fetches."""
    inference = normalize_program(program_of(program), feed_vars, fetch_vars)
    write_inference(inference, feed_vars, fetch_vars, files[0], None if program_only else files[1])
    return names_of(fetch_vars)


def inference_files(dirname: str, model: str | None = None, params: str | None = None) -> tuple[Path, Path]:
    """The files of a model in a folder, as Paddle 1.x names them: of the program, and of its values."""
    return Path(dirname, model or "__model__"), Path(dirname, params or "__params__")


def read_inference(model: Path, params: Path) -> list[Any]:
    """The two files of `write_inference`: [program, feed names, fetch variables]."""
    values, saved = atomic_files.read_tensors(params)
    atomic_files.finish(model, lambda p: bool(_content(p)["save_id"] == saved))
    content = _content(model)
    if content.get("fetches") is None:
        raise ConfigError(
            f"{model} was written by static.save, not by save_inference_model; use deserialize_program and load"
        )
    if content["save_id"] not in ("", saved):
        raise CorruptFileError(f"{model} and {params.name} are from different saves; save the model again")
    program = _program_of(content, str(model))
    _check(params, program.persistables(), values)
    fetches = _variables(program, content["fetches"], str(model))
    _to_scope(values)
    feeds = [v.name for v in _variables(program, content["feeds"] or [], str(model))]
    return [program, feeds, fetches]


# --- selected variables -------------------------------------------------------------------------------

VARS_FILE = "__vars__"


def save_vars(
    executor: Any,
    dirname: str,
    main_program: Program | None = None,
    vars: Variables | None = None,
    predicate: Callable[[Variable], bool] | None = None,
    filename: str | None = None,
) -> None:
    """Write variables into the file `dirname`/`filename`, by default `__vars__` (Paddle: one file for each).

    Which ones: `vars`, or the persistable variables of the program for which `predicate` is true.
    """
    chosen = _selected(main_program, vars, predicate)
    reject_stale("save_vars", program_of(main_program), chosen)
    write_vars(chosen, Path(dirname, filename or VARS_FILE))


def write_vars(variables: Mapping[str, Variable], path: Path, wholes: Values | None = None) -> None:
    """Write variables into a file; `wholes` has the values of those of which the scope has only rows."""
    wholes = wholes or {}
    values = _from_scope({name: v for name, v in variables.items() if name not in wholes}) | wholes
    sums = atomic_files.checksums(values)
    atomic_files.replace_files({path: atomic_files.tensor_writer(values, sums, atomic_files.save_id(sums))})


def load_vars(
    executor: Any,
    dirname: str,
    main_program: Program | None = None,
    vars: Variables | None = None,
    predicate: Callable[[Variable], bool] | None = None,
    filename: str | None = None,
) -> None:
    """Load the variables that `save_vars` selects with the same arguments; the file may contain more."""
    wanted = _selected(main_program, vars, predicate)
    path = Path(dirname, filename or VARS_FILE)
    values = rows_of_this_rank(program_of(main_program), atomic_files.read_tensors(path)[0])
    _check(path, wanted, values, extra_allowed=True)
    _to_scope({name: values[name] for name in wanted})


def _selected(
    program: Program | None, vars: Variables | None, predicate: Callable[[Variable], bool] | None
) -> dict[str, Variable]:
    program = program_of(program)
    listed = list(program.persistables().values()) if vars is None else _variables(program, vars, "vars")
    chosen = {v.name: v for v in listed if vars is not None or predicate is None or predicate(v)}
    for variable in chosen.values():
        if not variable.persistable:
            raise ConfigError(
                f"{variable.name!r} is not persistable, so the scope has no value of it; fetch it instead"
            )
    return chosen


# --- helpers ------------------------------------------------------------------------------------------


def _split(program: Program) -> tuple[dict[str, Variable], dict[str, Variable]]:
    """The persistables that go into .pdparams, and those that go into .pdopt."""
    used_by_forward = {
        storage(source)
        for node in program.graph.nodes
        if node.op == "call_function" and node.meta["role"] != "optimize"
        for source in node.all_input_nodes
    }
    first: dict[str, Variable] = {}
    second: dict[str, Variable] = {}
    for name, variable in program.persistables().items():
        is_first = isinstance(variable, Parameter) or storage(variable.node) in used_by_forward
        (first if is_first else second)[name] = variable
    return first, second


def _dependencies_of(graph: fx.Graph, wanted: Collection[fx.Node]) -> set[fx.Node]:
    """The nodes that `wanted` depends on, including nodes that mutate memory which later needed nodes read."""
    needed: set[fx.Node] = set()
    inputs = set(wanted)
    memory = {storage(n) for n in wanted}
    for node in reversed(graph.nodes):
        if node in inputs or any(storage(c) in memory for c in mutated_inputs(node)):
            needed.add(node)
            inputs.update(node.all_input_nodes)
            memory.update(map(storage, node.all_input_nodes))
    return needed


def _inference(feed_vars: Variables, fetch_vars: Variables, program: Program | None) -> Program:
    owner = next((v.program for v in _as_list(fetch_vars) if isinstance(v, Variable)), None)
    return normalize_program(program or owner or default_main_program(), feed_vars, fetch_vars)


def _model(
    program: Program, saved: str, feeds: list[str] | None = None, fetches: list[str] | None = None
) -> bytes:
    return atomic_files.seal(
        {"program": to_dict(program), "save_id": saved, "feeds": feeds, "fetches": fetches}
    )


def _program_of(content: Any, where: str) -> Program:
    try:
        return from_dict(content["program"])
    except (ArgosyError, KeyError, TypeError, IndexError) as e:
        raise CorruptFileError(f"{where} has no valid program: {e}") from e


def _content(path: Path) -> dict[str, Any]:
    """The content of a .pdmodel: the program, its save id and, for inference, the names of feeds and fetches."""
    content: dict[str, Any] = atomic_files.unseal(_read(path), str(path))
    is_model = isinstance(content, dict) and isinstance(content.get("save_id"), str)
    for key in ("feeds", "fetches") if is_model else ():
        names = content.get(key)
        is_model &= names is None or (isinstance(names, list) and all(isinstance(n, str) for n in names))
    if not is_model:
        raise CorruptFileError(
            f"{path} is not a valid model: it has no save_id, or its feeds or fetches are not names; save it again"
        )
    return content


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise ConfigError(f"there is no file {path}; give the path that you gave to save_inference_model")
    return path.read_bytes()


def _from_scope(variables: Mapping[str, Variable]) -> Values:
    scope = global_scope()
    values = {}
    for name, variable in variables.items():
        value = scope.values_of().get(name)
        if value is None:
            raise ScopeError(
                f"variable {name!r} has no value to save; run the startup program, or load, first"
            )
        if _kind(value) != _kind(variable):
            raise ScopeError(
                f"variable {name!r} is {_kind(value)} in the scope and {_kind(variable)} in "
                f"{variable.program.name}; save under the scope that the program ran in"
            )
        values[name] = value
    return values


def _to_scope(values: Values) -> None:
    """Copy in place if the scope has a tensor of the same shape and dtype, which keeps its memory and format."""
    scope = global_scope()
    for name, value in values.items():
        old = scope.values_of().get(name)
        if old is not None and _kind(old) == _kind(value):
            scope.write(name, value)
        else:
            scope.put(name, value.clone(), is_owned=True)


def _check(
    where: Path | str, wanted: Mapping[str, Variable], values: Values, extra_allowed: bool = False
) -> None:
    for name, variable in wanted.items():
        if name not in values:
            raise ConfigError(
                f"{where} has no variable {name!r} ({_kind(variable)}), which {variable.program.name} needs"
                f"{nearest(name, values)}; load what this program saved, or use set_program_state for a part"
            )
        if _kind(values[name]) != _kind(variable):
            raise ConfigError(
                f"{where}: {name!r} is {_kind(values[name])} and {variable.program.name} needs "
                f"{_kind(variable)}; load what this program saved"
            )
    extra = [] if extra_allowed else [name for name in values if name not in wanted]
    if extra:
        raise ConfigError(
            f"{where}: the program has no variable {extra[0]!r} ({_kind(values[extra[0]])})"
            f"{nearest(extra[0], wanted)}; load what this program saved, or list the variables to load in var_list"
        )


def _kind(value: Any) -> str:
    """float32[2, 3], of a tensor or a Variable."""
    return f"{dtype_name(value.dtype)}{list(value.shape)}"


def program_of(program: Any) -> Program:
    """A program, that of a CompiledProgram, or for None the default main program."""
    program = default_main_program() if program is None else program
    program = program.program if isinstance(program, CompiledProgram) else program
    if not isinstance(program, Program):
        raise ArgumentTypeError(f"{program!r} is a {type(program).__name__}; give a static.Program")
    return program


def _prefix(path: str) -> str:
    prefix = os.fspath(path)
    if not os.path.basename(prefix):
        raise ConfigError(f"path {prefix!r} is a folder; add a prefix for the file names: {prefix}model")
    for suffix in _SUFFIXES:
        prefix = prefix.removesuffix(suffix)
    return prefix


def _as_list(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]


def names_of(given: Variables) -> list[str]:
    """The names of one or several Variables or names."""
    return [v.name if isinstance(v, Variable) else v for v in _as_list(given)]


def _variables(program: Program, given: Variables | Iterable[Any], what: str) -> list[Variable]:
    """The program's variables with these names; a Variable may belong to the program that this item was cloned from."""
    variables = []
    for item in _as_list(given):
        if not isinstance(item, Variable | str):
            raise ArgumentTypeError(f"{what} holds {item!r}; give Variables or their names")
        name = item if isinstance(item, str) else item.name
        if name not in program.vars:
            raise ConfigError(f"{what}: {name!r} is not in {program.name}{nearest(name, program.vars)}")
        variables.append(program.vars[name])
    return variables
