"""Saving and loading of programs and of the scope's values.

    save / load                                 a program in training, to go on with it
    save_inference_model / load_…               what computes the fetches from the feeds, nothing else
    save_vars / load_vars                       chosen variables in one file
    load_program_state / set_program_state      values as a dict, for transfer

The suffixes are Paddle's, the contents are not: `.pdmodel` is JSON, the others are safetensors, all with
checksums and never pickle. Every file is replaced as a whole; a kill in the middle leaves the old one.
"""

# SPDX-License-Identifier: Apache-2.0
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import fx

from argosy.engine.errors import ArgosyError, ConfigError, CorruptFileError, ScopeError
from argosy.engine.ir.clone import copy_nodes
from argosy.engine.ir.dtypes import dtype_name
from argosy.engine.ir.effects import changed_inputs, storage
from argosy.engine.ir.nearest import nearest
from argosy.engine.ir.program import Program, default_main_program
from argosy.engine.ir.serialize import from_dict, to_dict
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.log import logger
from argosy.engine.ops.send import lookup_table
from argosy.engine.runtime import store
from argosy.engine.runtime.scope import global_scope
from argosy.static.io_divided import refuse_divided, refuse_stale

_SUFFIXES = (".pdparams", ".pdopt", ".pdmodel", ".pdiparams")
Chosen = Variable | str | Sequence[Variable | str]
Values = dict[str, torch.Tensor]


# --- a program in training ----------------------------------------------------------------------------


def save(program: Program, model_path: str, protocol: int = 4) -> None:
    """Write `model_path`.pdparams (what forward needs), .pdopt (the other persistables) and .pdmodel.

    Parameters and statistics (a batch_norm's running mean, a parameter in Paddle) go into .pdparams; what
    only the update reads, into .pdopt; the program, into .pdmodel. A learning-rate scheduler is not saved,
    the variable with its last rate is; nor is the state of random generators. `protocol` is Paddle's for
    pickle: nothing is pickled here.
    """
    program, prefix = _program(program), _prefix(model_path)
    refuse_divided("save", program)
    parameters, others = _split(program)
    first, second = _from_scope(parameters), _from_scope(others)
    sums = store.checksums(first), store.checksums(second)
    saved = store.save_id(*sums)
    store.replace_files(
        {
            Path(f"{prefix}.pdparams"): store.tensor_writer(first, sums[0], saved),
            Path(f"{prefix}.pdopt"): store.tensor_writer(second, sums[1], saved),
            Path(f"{prefix}.pdmodel"): store.bytes_writer(_model(program, saved)),
        }
    )


def load(program: Program, model_path: str, executor: Any = None, var_list: Chosen | None = None) -> None:
    """Give the program's variables in the global scope the values of `save`; an error changes none.

    Names, shapes and dtypes must be those of the program (Paddle only warns of names that it does not know);
    `var_list` loads these variables alone. A program without optimizer variables leaves the .pdopt alone.
    """
    program, prefix = _program(program), _prefix(model_path)
    wanted = program.persistables()
    if var_list is not None:
        wanted = {v.name: v for v in _variables(program, var_list, "var_list")}
    path, optimizer_path = Path(f"{prefix}.pdparams"), Path(f"{prefix}.pdopt")
    found, saved = store.read_tensors(path)
    if not wanted.keys() <= found.keys():
        found |= _rest(path, optimizer_path, saved)
    _check(path, wanted, found, extra_allowed=var_list is not None)
    _to_scope({name: found[name] for name in wanted})


def _rest(path: Path, optimizer_path: Path, saved: str) -> Values:
    """The .pdopt that was saved with `path`; nothing if there is none."""
    store.finish(optimizer_path, lambda p: store.read_tensors(p)[1] == saved)
    if not optimizer_path.is_file():
        return {}
    found, saved_found = store.read_tensors(optimizer_path)
    if saved_found != saved:
        raise CorruptFileError(
            f"{path} and {optimizer_path.name} are of two different saves; save again, or take both from one "
            "copy (load_program_state of one file and set_program_state load it alone)"
        )
    return found


def load_program_state(model_path: str, var_list: Chosen | None = None) -> dict[str, Any]:
    """The values of `save` by name, as NumPy arrays (bfloat16, which NumPy lacks, as torch tensors).

    `model_path` may also be a single file. `var_list`: only these, Variables or names.
    """
    if Path(model_path).is_file():
        found, _ = store.read_tensors(Path(model_path))
    else:
        path = Path(f"{model_path}.pdparams")
        found, saved = store.read_tensors(path)
        found |= _rest(path, Path(f"{model_path}.pdopt"), saved)
    if var_list is not None:
        names = [v if isinstance(v, str) else v.name for v in _listed(var_list)]
        for name in names:
            if name not in found:
                raise ConfigError(f"{model_path} has no variable {name!r}{nearest(name, found)}")
        found = {name: found[name] for name in names}
    return {name: v if v.dtype is torch.bfloat16 else v.numpy() for name, v in found.items()}


def set_program_state(program: Program, state_dict: Mapping[str, Any]) -> None:
    """Give variables of the program the values of a dict; those that it does not name keep theirs.

    A wrong shape or dtype raises; names that the program does not have are left out with a warning, as in
    Paddle.
    """
    program = _program(program)
    wanted = program.persistables()
    unknown = [name for name in state_dict if name not in wanted]
    values = {name: _tensor(value) for name, value in state_dict.items() if name in wanted}
    _check("state_dict", {name: wanted[name] for name in values}, values)
    _to_scope(values)
    if unknown:
        logger.warning("set_program_state: %s not in %s: not set", ", ".join(unknown), program.name)


# --- for inference ------------------------------------------------------------------------------------


def normalize_program(program: Program, feed_vars: Chosen, fetch_vars: Chosen) -> Program:
    """A copy for testing, with only the nodes that compute `fetch_vars` from `feed_vars`."""
    program = _program(program)
    test = program.clone(for_test=True)
    feeds = _variables(test, _listed(feed_vars), "feed_vars")
    fetches = _variables(test, _listed(fetch_vars), "fetch_vars")
    if not fetches:
        raise ConfigError("fetch_vars is empty; give the variables that inference shall compute")
    for feed in feeds:
        if not feed.is_data:
            raise ConfigError(
                f"feed_vars: {feed.name!r} is not fed but computed; give variables of static.data"
            )
    kept = _computing(test.graph, {v.node for v in fetches})
    kept |= {v.node for v in feeds}
    named = test.names_of_nodes()
    given = {v.name for v in feeds}
    needed = [named[n] for n in kept if n.op == "placeholder" and test.vars[named[n]].is_data]
    missing = [name for name in needed if name not in given]
    if missing:
        raise ConfigError(f"the fetches need the feed {missing[0]!r} too; add it to feed_vars, or fetch less")
    return copy_nodes(test, [n for n in test.graph.nodes if n in kept], f"{program.name}_inference")


def save_inference_model(
    path_prefix: str,
    feed_vars: Chosen,
    fetch_vars: Chosen,
    executor: Any = None,
    program: Program | None = None,
) -> None:
    """Write `path_prefix`.pdmodel and .pdiparams: the program from feeds to fetches, and its values.

    `program`: by default the one that the fetches belong to (Paddle: the default main program).
    """
    prefix = _prefix(path_prefix)
    made = _inference(feed_vars, fetch_vars, program)
    write_inference(made, feed_vars, fetch_vars, Path(f"{prefix}.pdmodel"), Path(f"{prefix}.pdiparams"))


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


def serialize_program(feed_vars: Chosen, fetch_vars: Chosen, program: Program | None = None) -> bytes:
    """What `save_inference_model` writes as .pdmodel."""
    return _model(_inference(feed_vars, fetch_vars, program), "", names_of(feed_vars), names_of(fetch_vars))


def deserialize_program(data: bytes) -> Program:
    """The program in the bytes of a .pdmodel, of `save` (it trains on) or of `save_inference_model`."""
    return _program_of(store.unseal(data, "the serialized program"), "the serialized program")


def _refuse_remote(program: Program) -> None:
    """Raise if a model's tables lie on parameter servers: nobody else could look them up."""
    if program.graph.find_nodes(op="call_function", target=lookup_table):
        raise ConfigError(
            f"{program.name} looks tables up on the parameter servers, so that a model of it would need them; use "
            "fleet.save_inference_model, which writes the tables into the model"
        )


def write_inference(
    program: Program, feed_vars: Chosen, fetch_vars: Chosen, model: Path, params: Path | None
) -> None:
    """Write a normalized program and, unless `params` is None, its values."""
    _refuse_remote(program)
    values = _from_scope(program.persistables()) if params is not None else {}
    sums = store.checksums(values)
    saved = store.save_id(sums) if params is not None else ""
    files = {model: store.bytes_writer(_model(program, saved, names_of(feed_vars), names_of(fetch_vars)))}
    if params is not None:
        files = {params: store.tensor_writer(values, sums, saved), **files}
    store.replace_files(files)


def read_inference(model: Path, params: Path) -> list[Any]:
    """The two files of `write_inference`: [program, feed names, fetch variables]."""
    found, saved = store.read_tensors(params)
    store.finish(model, lambda p: bool(store.unseal(_read(p), str(p))["save_id"] == saved))
    content = store.unseal(_read(model), str(model))
    if content.get("fetches") is None:
        raise ConfigError(
            f"{model} is of static.save, not of save_inference_model; use deserialize_program and load"
        )
    if content["save_id"] not in ("", saved):
        raise CorruptFileError(f"{model} and {params.name} are of two different saves; save the model again")
    program = _program_of(content, str(model))
    _check(params, program.persistables(), found)
    fetches = _variables(program, content["fetches"], str(model))
    _to_scope(found)
    return [program, list(content["feeds"]), fetches]


# --- chosen variables ---------------------------------------------------------------------------------

VARS_FILE = "__vars__"


def save_vars(
    executor: Any,
    dirname: str,
    main_program: Program | None = None,
    vars: Chosen | None = None,
    predicate: Callable[[Variable], bool] | None = None,
    filename: str | None = None,
) -> None:
    """Write variables into the file `dirname`/`filename`, by default `__vars__` (Paddle: one file for each).

    Which ones: `vars`, or the persistable variables of the program for which `predicate` is true.
    """
    chosen = _chosen(main_program, vars, predicate)
    refuse_stale("save_vars", _program(main_program), chosen)
    write_vars(chosen, Path(dirname, filename or VARS_FILE))


def write_vars(variables: Mapping[str, Variable], path: Path) -> None:
    """Write variables into a file."""
    values = _from_scope(variables)
    sums = store.checksums(values)
    store.replace_files({path: store.tensor_writer(values, sums, store.save_id(sums))})


def load_vars(
    executor: Any,
    dirname: str,
    main_program: Program | None = None,
    vars: Chosen | None = None,
    predicate: Callable[[Variable], bool] | None = None,
    filename: str | None = None,
) -> None:
    """Read what `save_vars` chooses by the same arguments; the file may hold more than that."""
    wanted = _chosen(main_program, vars, predicate)
    path = Path(dirname, filename or VARS_FILE)
    found, _ = store.read_tensors(path)
    _check(path, wanted, found, extra_allowed=True)
    _to_scope({name: found[name] for name in wanted})


def _chosen(
    program: Program | None, vars: Chosen | None, predicate: Callable[[Variable], bool] | None
) -> dict[str, Variable]:
    program = _program(program)
    listed = list(program.persistables().values()) if vars is None else _variables(program, vars, "vars")
    chosen = {v.name: v for v in listed if vars is not None or predicate is None or predicate(v)}
    for variable in chosen.values():
        if not variable.persistable:
            raise ConfigError(
                f"{variable.name!r} is not persistable: the scope keeps no value of it; fetch it instead"
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


def _computing(graph: fx.Graph, wanted: Collection[fx.Node]) -> set[fx.Node]:
    """The nodes that `wanted` depend on; a node that changes memory counts for who reads it afterwards."""
    kept: set[fx.Node] = set()
    alive = set(wanted)
    memory = {storage(n) for n in wanted}
    for node in reversed(graph.nodes):
        if node in alive or any(storage(c) in memory for c in changed_inputs(node)):
            kept.add(node)
            alive.update(node.all_input_nodes)
            memory.update(map(storage, node.all_input_nodes))
    return kept


def _inference(feed_vars: Chosen, fetch_vars: Chosen, program: Program | None) -> Program:
    owner = next((v.program for v in _listed(fetch_vars) if isinstance(v, Variable)), None)
    return normalize_program(program or owner or default_main_program(), feed_vars, fetch_vars)


def _model(
    program: Program, saved: str, feeds: list[str] | None = None, fetches: list[str] | None = None
) -> bytes:
    return store.seal({"program": to_dict(program), "save_id": saved, "feeds": feeds, "fetches": fetches})


def _program_of(content: Any, where: str) -> Program:
    try:
        return from_dict(content["program"])
    except (ArgosyError, KeyError, TypeError) as e:
        raise CorruptFileError(f"{where} holds no program that can be loaded: {e}") from e


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise ConfigError(f"there is no file {path}; give the path that was given to save_inference_model")
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
    """In place where the scope has a tensor of that kind: its memory and memory format stay."""
    scope = global_scope()
    for name, value in values.items():
        old = scope.values_of().get(name)
        if old is not None and _kind(old) == _kind(value):
            with torch.no_grad():
                old.copy_(value)
        else:
            scope.put(name, value.clone())


def _check(
    where: Path | str, wanted: Mapping[str, Variable], found: Values, extra_allowed: bool = False
) -> None:
    for name, variable in wanted.items():
        if name not in found:
            raise ConfigError(
                f"{where} has no variable {name!r} ({_kind(variable)}), which {variable.program.name} needs"
                f"{nearest(name, found)}; load what this program saved, or use set_program_state for a part"
            )
        if _kind(found[name]) != _kind(variable):
            raise ConfigError(
                f"{where}: {name!r} is {_kind(found[name])} and {variable.program.name} needs "
                f"{_kind(variable)}; load what this program saved"
            )
    extra = [] if extra_allowed else [name for name in found if name not in wanted]
    if extra:
        raise ConfigError(
            f"{where}: the program has no variable {extra[0]!r} ({_kind(found[extra[0]])})"
            f"{nearest(extra[0], wanted)}; load what this program saved, or name what you want in var_list"
        )


def _kind(value: Any) -> str:
    """float32[2, 3], of a tensor or a Variable."""
    return f"{dtype_name(value.dtype)}{list(value.shape)}"


def _tensor(value: Any) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value))


def _program(program: Any) -> Program:
    program = default_main_program() if program is None else program
    if not isinstance(program, Program):
        raise ConfigError(f"{program!r} is a {type(program).__name__}; give a static.Program")
    return program


def _prefix(path: str) -> str:
    prefix = os.fspath(path)
    if not os.path.basename(prefix):
        raise ConfigError(
            f"path {prefix!r} ends in a folder; add the first part of the file names: {prefix}model"
        )
    for suffix in _SUFFIXES:
        prefix = prefix.removesuffix(suffix)
    return prefix


def _listed(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]


def names_of(given: Chosen) -> list[str]:
    """The names of one Variable or several; names stay as they are."""
    return [v.name if isinstance(v, Variable) else v for v in _listed(given)]


def _variables(program: Program, given: Chosen | Iterable[Any], what: str) -> list[Variable]:
    """The program's variables of these names; a Variable may be of the program that it was cloned from."""
    found = []
    for one in _listed(given):
        if not isinstance(one, Variable | str):
            raise ConfigError(f"{what} holds {one!r}; give Variables or their names")
        name = one if isinstance(one, str) else one.name
        if name not in program.vars:
            raise ConfigError(f"{what}: {name!r} is not in {program.name}{nearest(name, program.vars)}")
        found.append(program.vars[name])
    return found
