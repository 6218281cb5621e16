"""Parameters as bytes, and files of bytes: what serialize_program returns can be written with save_to_file."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

from argosy.engine.errors import ConfigError, CorruptFileError
from argosy.engine.ir.program import Program, default_main_program
from argosy.engine.runtime.atomic_files import bytes_writer, replace_files
from argosy.engine.runtime.scope import global_scope
from argosy.static.io import Variables, normalize_program, set_program_state


def serialize_persistables(
    feed_vars: Variables, fetch_vars: Variables, executor: Any = None, program: Program | None = None
) -> bytes:
    """The values of the parameters and statistics that compute fetch_vars from feed_vars, in safetensors' format."""
    from safetensors import torch as safetensors  # most scripts do not need it

    needed = normalize_program(program or default_main_program(), feed_vars, fetch_vars)
    values = {v.name: global_scope().get(v.name) for v in needed.list_vars() if v.persistable}
    return safetensors.save({name: value.detach().contiguous().clone() for name, value in values.items()})


def deserialize_persistables(program: Program, data: bytes, executor: Any = None) -> None:
    """Write the values of serialize_persistables to the program's variables in the scope."""
    from safetensors import SafetensorError
    from safetensors import torch as safetensors

    try:
        values = safetensors.load(data)
    except SafetensorError as e:
        raise CorruptFileError(f"the data is not from serialize_persistables: {e}") from e
    set_program_state(program, values)


def save_to_file(path: str, content: bytes) -> None:
    """Write bytes to a file, atomically; missing directories are created."""
    if not isinstance(content, bytes):
        raise ConfigError(f"save_to_file: content is a {type(content).__name__}; give bytes")
    target = Path(path).absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_files({target: bytes_writer(content)})


def load_from_file(path: str) -> bytes:
    """The bytes of a file."""
    try:
        return Path(path).read_bytes()
    except OSError as e:
        raise ConfigError(
            f"load_from_file: {path} cannot be read: {e.strerror}; give an existing file"
        ) from e
