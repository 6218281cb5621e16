"""Files that are there whole or not at all, and that show when somebody has changed them.

    write    temporary files beside the targets ─▶ fsync ─▶ all written? rename one by one ─▶ fsync the folder
    read     format, version, checksums: what does not fit is refused, never half used

A kill at any moment leaves under each name the old file or the new one. Between two renames of one save it
leaves one of each: files of one save carry the same `save_id`, whoever reads several compares it, and
`finish` does the rename that is left.

Two formats, whatever the file's suffix says: tensors are safetensors, with a checksum for each tensor in the
header; everything else is JSON with a checksum over its content. No pickle.
"""

# SPDX-License-Identifier: Apache-2.0
import fcntl
import glob
import hashlib
import json
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import safetensors
import torch

from argosy.engine.errors import ArgosyError, ConfigError, CorruptFileError
from argosy.engine.files import sync
from argosy.engine.ir.dtypes import dtype_name

Writer = Callable[[Path], None]
VERSION = 1
TENSORS = "argosy.tensors"
PROGRAM = "argosy.program"
_LOCK, _DATA = "lock", "data"
_STARTING_S = 60
"""So long a writer may take, at the most, from making its folder to locking it."""
_ADVICE = "take an intact copy of the file, or save again"


# --- whole files --------------------------------------------------------------------------------------


def replace_files(writers: Mapping[Path, Writer]) -> None:
    """Let each writer fill a temporary file; once all of them are on disk they take their targets' places."""
    with ExitStack() as stack:
        ready = {target: stack.enter_context(_temporary(target, write)) for target, write in writers.items()}
        for target, temporary in ready.items():
            os.replace(temporary, target)
    for folder in {target.parent for target in writers}:
        sync(folder)
    for target in writers:
        _remove_left_over(target)


def remove(target: Path) -> None:
    """Delete a file, what killed writers of it left, and its folder if nothing else is in it."""
    target.unlink(missing_ok=True)
    _remove_left_over(target)
    with suppress(OSError):  # not empty: somebody else's files
        target.parent.rmdir()


def finish(target: Path, fits: Callable[[Path], bool]) -> None:
    """If a save was killed between its renames: put in place the file that it had ready, if it fits."""
    for folder in _left_over(target):
        with suppress(OSError, ArgosyError), _free(folder):
            if fits(folder / _DATA):
                os.replace(folder / _DATA, target)
                sync(target.parent)


@contextmanager
def _temporary(target: Path, write: Writer) -> Iterator[Path]:
    """A written file in a folder of its own beside the target: safetensors puts temporary files there too."""
    folder = target.parent / f".{target.name}.{secrets.token_hex(8)}.tmp"
    folder.mkdir(parents=True)
    try:
        with (folder / _LOCK).open("xb") as lock:
            with suppress(OSError):  # a file system without locks: then nobody touches left-over files either
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path = folder / _DATA
            write(path)
            path.chmod(stat.S_IMODE(os.fstat(lock.fileno()).st_mode))
            sync(path)
            yield path
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _left_over(target: Path) -> list[Path]:
    """The temporary folders of this target, of writers that were killed and of those that are at work."""
    pattern = f".{glob.escape(target.name)}.*.tmp"
    return [target.parent / name for name in glob.glob(pattern, root_dir=target.parent)]


@contextmanager
def _free(folder: Path) -> Iterator[None]:
    """Hold the lock of a writer that is no more; OSError if it is at work."""
    with ExitStack() as stack:
        with suppress(FileNotFoundError):  # the lock is made first: its writer was deleting the folder
            lock = stack.enter_context((folder / _LOCK).open("rb"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def _remove_left_over(target: Path) -> None:
    """Delete what killed writers left, now that it is of no use."""
    for folder in _left_over(target):
        with suppress(OSError):
            is_empty = set(os.listdir(folder)) <= {_LOCK}
            if is_empty and time.time() - folder.stat().st_mtime < _STARTING_S:
                continue
            with _free(folder):
                shutil.rmtree(folder)


# --- JSON ---------------------------------------------------------------------------------------------


def seal(content: Any) -> bytes:
    """JSON with its format, version and the sha256 of its canonical content."""
    envelope = {"format": PROGRAM, "version": VERSION, "sha256": _sum_of(content), "content": content}
    return json.dumps(envelope, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def unseal(data: bytes, where: str) -> Any:
    """The content of `seal`; CorruptFileError, naming `where` it is from, if it is not what was sealed."""
    try:
        envelope = json.loads(data)
        if not isinstance(envelope, dict):
            raise ValueError("the outermost value is no object")
    except (ValueError, RecursionError) as e:
        raise CorruptFileError(f"{where} ({len(data)} bytes) is no whole JSON file: {e}; {_ADVICE}") from e
    _check_format(where, PROGRAM, envelope.get("format"), envelope.get("version"))
    if "content" not in envelope or envelope.get("sha256") != _sum_of(envelope["content"]):
        raise CorruptFileError(f"{where}: the content does not fit its sha256, it was altered; {_ADVICE}")
    return envelope["content"]


def _sum_of(content: Any) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def bytes_writer(data: bytes) -> Writer:
    """Writes these bytes."""

    def write(path: Path) -> None:
        path.write_bytes(data)

    return write


# --- tensors ------------------------------------------------------------------------------------------


def checksums(tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """For each tensor the sha256 of its name, dtype, shape and values."""
    return {name: _checksum(name, value) for name, value in tensors.items()}


def save_id(*sums: Mapping[str, str]) -> str:
    """One number for all that is saved together; the same tensors give the same one."""
    return hashlib.sha256(json.dumps([sorted(s.items()) for s in sums]).encode("ascii")).hexdigest()


def tensor_writer(tensors: Mapping[str, torch.Tensor], sums: Mapping[str, str], saved: str) -> Writer:
    """Writes tensors by name, contiguous whatever their memory format; they may share memory."""
    plain = {name: _plain(value) for name, value in tensors.items()}
    heads = {"format": TENSORS, "version": str(VERSION), "save_id": saved, "sha256": json.dumps(dict(sums))}

    def write(path: Path) -> None:
        try:
            safetensors.serialize_file({name: _spec(value) for name, value in plain.items()}, path, heads)
        except safetensors.SafetensorError as e:
            raise OSError(f"{path} cannot be written: {e}; make room for it") from e

    for name, value in plain.items():
        _check_dtype(name, value)
    return write


def read_tensors(path: Path) -> tuple[dict[str, torch.Tensor], str]:
    """The tensors of a file by name, checked, in memory of their own; and the save that they are of."""
    if not path.is_file():
        raise ConfigError(f"there is no file {path}; give the path that was given to save")
    try:
        with safetensors.safe_open(path, framework="pt", backend="pread") as file:
            metadata = file.metadata() or {}
            _check_format(str(path), TENSORS, metadata.get("format"), metadata.get("version"))
            sums = json.loads(metadata.get("sha256", "null"))
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (no Mapping)
    except (safetensors.SafetensorError, ValueError) as e:
        raise CorruptFileError(
            f"{path} ({path.stat().st_size} bytes) is no whole safetensors file: {e}; {_ADVICE} "
            "(Paddle's own files are pickles, which Argosy does not read)"
        ) from e
    if not isinstance(sums, dict) or sums.keys() != found.keys():
        raise CorruptFileError(f"{path}: the names of the tensors are not those that were saved; {_ADVICE}")
    for name, value in found.items():
        if _checksum(name, value) != sums[name]:
            raise CorruptFileError(
                f"{path}: {name!r} ({dtype_name(value.dtype)}{list(value.shape)}) does not fit its sha256, "
                f"it was altered; {_ADVICE}"
            )
    return found, metadata.get("save_id", "")


def read_save_id(path: Path) -> str:
    """The save that a file of tensors is of; its header alone is read, and the tensors are not checked."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
    except (safetensors.SafetensorError, OSError) as e:
        raise CorruptFileError(f"{path} is no whole safetensors file: {e}; {_ADVICE}") from e
    _check_format(str(path), TENSORS, metadata.get("format"), metadata.get("version"))
    return str(metadata.get("save_id", ""))


def _check_format(where: str, wanted: str, found: Any, version: Any) -> None:
    if found != wanted:
        raise CorruptFileError(
            f"{where} is of format {found!r}, not {wanted!r}; give a file that Argosy saved as such"
        )
    if str(version) != str(VERSION):
        raise CorruptFileError(
            f"{where} is of version {version!r} and this Argosy reads version {VERSION}; "
            "load it with the Argosy that saved it, or a newer one"
        )


def _plain(value: torch.Tensor) -> torch.Tensor:
    return value.detach().to("cpu").contiguous()


def _spec(value: torch.Tensor) -> safetensors.TensorSpec:
    return safetensors.TensorSpec(
        dtype=dtype_name(value.dtype),
        shape=list(value.shape),
        data_ptr=value.data_ptr(),
        data_len=value.nbytes,
    )


def _check_dtype(name: str, value: torch.Tensor) -> None:
    try:
        _spec(value)
    except safetensors.SafetensorError as e:
        raise ConfigError(
            f"{name!r} is {dtype_name(value.dtype)}, which safetensors cannot hold; cast it first"
        ) from e


def _checksum(name: str, value: torch.Tensor) -> str:
    made = hashlib.sha256(f"{name}\0{dtype_name(value.dtype)}\0{list(value.shape)}\0".encode())
    made.update(_plain(value).reshape(-1).view(torch.uint8).numpy().data)
    return made.hexdigest()
