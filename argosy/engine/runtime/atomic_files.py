"""Atomic, durable, checksummed files.

    write    temporary files next to the targets ─▶ fsync ─▶ all written? rename one by one ─▶ fsync the directory
    read     format, version, checksums: a file that does not match is rejected

A kill at any moment leaves either the old or the new file under each name. Between two renames of one save it may
leave one of each: files of one save have the same `save_id`, which readers of several files compare, and `finish`
completes the remaining rename.

Two formats, independent of the file's suffix: tensors are safetensors, with a checksum for each tensor in the header;
everything else is JSON with a checksum over its content. No pickle.
"""

# SPDX-License-Identifier: Apache-2.0
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

from argosy.engine import files
from argosy.engine.errors import ArgosyError, ConfigError, CorruptFileError, FileError
from argosy.engine.files import sync
from argosy.engine.ir.dtypes import dtype_name

Writer = Callable[[Path], None]
VERSION = 1
TENSORS = "argosy.tensors"
PROGRAM = "argosy.program"
_LOCK, _DATA = "lock", "data"
_STARTING_S = 60
"""The longest time between a writer's creation of its temporary directory and its lock."""
_ADVICE = "take an intact copy of the file, or save again"


# --- atomic replacement -------------------------------------------------------------------------------


def replace_files(writers: Mapping[Path, Writer]) -> None:
    """Write temporary files, and rename them to their targets once all of them are on disk."""
    try:
        _replace(writers)
    except (OSError, ValueError) as e:  # ValueError: an invalid name
        if isinstance(e, ArgosyError):
            raise
        names = ", ".join(map(str, writers))
        raise FileError(
            f"{names} cannot be written: {e}; give another path, free disk space, or grant this user write access"
        ) from e


def _replace(writers: Mapping[Path, Writer]) -> None:
    with ExitStack() as stack:
        ready = {target: stack.enter_context(_temporary(target, write)) for target, write in writers.items()}
        for target, temporary in ready.items():
            os.replace(temporary, target)
    for folder in {target.parent for target in writers}:
        sync(folder)
    for target in writers:
        _remove_stale(target)


def remove(target: Path) -> None:
    """Delete a file, temporary files of killed writers, and its directory if it is empty then."""
    target.unlink(missing_ok=True)
    _remove_stale(target)
    with suppress(OSError):  # not empty: other files
        target.parent.rmdir()


def finish(target: Path, fits: Callable[[Path], bool]) -> None:
    """Complete a save that was killed between its renames: rename its temporary file, if `fits` accepts it."""
    for folder in _temporary_folders(target):
        with suppress(OSError, ArgosyError), _stale_lock(folder):
            if fits(folder / _DATA):
                os.replace(folder / _DATA, target)
                sync(target.parent)


@contextmanager
def _temporary(target: Path, write: Writer) -> Iterator[Path]:
    """A written file in a new directory next to the target, where safetensors creates temporary files too."""
    folder = target.parent / f".{target.name}.{secrets.token_hex(8)}.tmp"
    folder.mkdir(parents=True)
    try:
        with (folder / _LOCK).open("xb") as lock:
            with suppress(OSError):  # a file system without locks: stale files are not removed either
                files.lock(lock, blocks=False)
            path = folder / _DATA
            write(path)
            path.chmod(stat.S_IMODE(os.fstat(lock.fileno()).st_mode))
            sync(path)
            yield path
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _temporary_folders(target: Path) -> list[Path]:
    """The temporary directories of this target, of killed and of active writers."""
    pattern = f".{glob.escape(target.name)}.*.tmp"
    return [target.parent / name for name in glob.glob(pattern, root_dir=target.parent)]


@contextmanager
def _stale_lock(folder: Path) -> Iterator[None]:
    """Acquire the lock of a killed writer; raises OSError if the writer is active."""
    with ExitStack() as stack:
        with suppress(FileNotFoundError):  # the lock is created first: its writer was deleting the directory
            lock = stack.enter_context((folder / _LOCK).open("rb"))
            files.lock(lock, blocks=False)
        yield


def _remove_stale(target: Path) -> None:
    """Delete the temporary directories of killed writers."""
    for folder in _temporary_folders(target):
        with suppress(OSError):
            is_empty = set(os.listdir(folder)) <= {_LOCK}
            if is_empty and time.time() - folder.stat().st_mtime < _STARTING_S:
                continue
            with _stale_lock(folder):
                shutil.rmtree(folder)


# --- JSON ---------------------------------------------------------------------------------------------


def seal(content: Any) -> bytes:
    """JSON with its format, version and the sha256 of its canonical content."""
    envelope = {"format": PROGRAM, "version": VERSION, "sha256": _sum_of(content), "content": content}
    return json.dumps(envelope, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def unseal(data: bytes, where: str) -> Any:
    """The content of `seal`; raises CorruptFileError, which mentions `where`, if the checksum does not match."""
    try:
        envelope = json.loads(data)
        if not isinstance(envelope, dict):
            raise ValueError("the outermost value is not an object")
    except (ValueError, RecursionError) as e:
        raise CorruptFileError(f"{where} ({len(data)} bytes) is not a valid JSON file: {e}; {_ADVICE}") from e
    _check_format(where, PROGRAM, envelope.get("format"), envelope.get("version"))
    if "content" not in envelope or envelope.get("sha256") != _sum_of(envelope["content"]):
        raise CorruptFileError(f"{where}: the content does not match its sha256, it was altered; {_ADVICE}")
    return envelope["content"]


def _sum_of(content: Any) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def bytes_writer(data: bytes) -> Writer:
    """A writer of these bytes."""

    def write(path: Path) -> None:
        path.write_bytes(data)

    return write


# --- tensors ------------------------------------------------------------------------------------------


def checksums(tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """The sha256 of each tensor's name, dtype, shape and values."""
    return {name: _checksum(name, value) for name, value in tensors.items()}


def save_id(*sums: Mapping[str, str]) -> str:
    """An id for all files of one save; equal tensors have equal ids."""
    return hashlib.sha256(json.dumps([sorted(s.items()) for s in sums]).encode("ascii")).hexdigest()


def tensor_writer(
    tensors: Mapping[str, torch.Tensor], sums: Mapping[str, str], saved: str, more: Any = None
) -> Writer:
    """A writer of tensors by name; contiguous, independent of their memory format; they may share memory.

    `more`: a JSON value, which `read_more` returns.
    """
    plain = {name: _plain(value) for name, value in tensors.items()}
    heads = {"format": TENSORS, "version": str(VERSION), "save_id": saved, "sha256": json.dumps(dict(sums))}
    if more is not None:
        heads["more"] = seal(more).decode("ascii")

    def write(path: Path) -> None:
        try:
            safetensors.serialize_file({name: _spec(value) for name, value in plain.items()}, path, heads)
        except safetensors.SafetensorError as e:
            raise OSError(str(e)) from e

    for name, value in plain.items():
        _check_dtype(name, value)
    return write


def read_tensors(path: Path) -> tuple[dict[str, torch.Tensor], str]:
    """The tensors of a file by name, with verified checksums, and the file's `save_id`."""
    if not path.is_file():
        raise ConfigError(f"there is no file {path}; give the path that was given to save")
    try:
        with safetensors.safe_open(path, framework="pt", backend="pread") as file:
            metadata = file.metadata() or {}
            _check_format(str(path), TENSORS, metadata.get("format"), metadata.get("version"))
            sums = json.loads(metadata.get("sha256", "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (no Mapping)
    except (safetensors.SafetensorError, ValueError) as e:
        raise CorruptFileError(
            f"{path} ({path.stat().st_size} bytes) is not a valid safetensors file: {e}; {_ADVICE} "
            "(Paddle's own files are pickles, which Argosy does not read)"
        ) from e
    if not isinstance(sums, dict) or sums.keys() != tensors.keys():
        raise CorruptFileError(f"{path}: the names of the tensors are not those that were saved; {_ADVICE}")
    for name, value in tensors.items():
        if _checksum(name, value) != sums[name]:
            raise CorruptFileError(
                f"{path}: {name!r} ({dtype_name(value.dtype)}{list(value.shape)}) does not match its sha256, "
                f"it was altered; {_ADVICE}"
            )
    return tensors, metadata.get("save_id", "")


def read_save_id(path: Path) -> str:
    """The `save_id` of a file of tensors; reads only the header and does not verify the tensors."""
    return _metadata(path).get("save_id", "")


def read_more(path: Path) -> Any:
    """The JSON value `more` of a file of tensors; None if it has none."""
    text = _metadata(path).get("more")
    return None if text is None else unseal(text.encode(), str(path))


def _metadata(path: Path) -> dict[str, str]:
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
    except (safetensors.SafetensorError, OSError) as e:
        raise CorruptFileError(f"{path} is not a valid safetensors file: {e}; {_ADVICE}") from e
    _check_format(str(path), TENSORS, metadata.get("format"), metadata.get("version"))
    return metadata


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
            f"{name!r} is {dtype_name(value.dtype)}, which safetensors does not support; cast it first"
        ) from e


def _checksum(name: str, value: torch.Tensor) -> str:
    digest = hashlib.sha256(f"{name}\0{dtype_name(value.dtype)}\0{list(value.shape)}\0".encode())
    digest.update(_plain(value).reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
