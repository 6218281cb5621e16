"""Files of a data set that are what they should be, made or unpacked once for all processes.

A checksum is computed once per file and remembered in `.checked.json` beside it, with the file's size
and time of change: as long as those stay, the next start trusts it. Whoever makes or checks something
in a folder holds a lock (`flock`, so a killed process leaves none behind).
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from argosy.engine.errors import CorruptFileError, DataError

MANIFEST = "manifest.json"
_REMEMBERED = ".checked.json"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path`; other processes wait until it is free."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("w")
    except OSError as e:
        raise DataError(
            f"cannot write in {path.parent} ({e.strerror}), where a data set is checked and unpacked; make it"
            " writable, or set ARGOSY_CACHE to a folder that is"
        ) from e
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file that then takes the place of `path`: whole or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        write(Path(name))
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def check(folder: Path, checksums: Mapping[str, str], what_to_do: str) -> None:
    """Refuse a file of the folder whose checksum (md5 or sha256, by its length) is another one."""
    with locked(folder / ".lock"):
        remembered = _recall(folder)
        for name, wanted in checksums.items():
            path = folder / name
            if not path.is_file():
                raise CorruptFileError(f"{path} is missing; {what_to_do}")
            if remembered.get(name) == [wanted, *_state(path)]:
                continue
            found = _digest(path, "md5" if len(wanted) == 32 else "sha256")
            if found != wanted:
                raise CorruptFileError(
                    f"{path} ({path.stat().st_size} bytes) has checksum {found}, not {wanted}: it is"
                    f" truncated or altered; {what_to_do}"
                )
            _remember(folder, name, wanted)


def derive(source: Path, target: Path, make: Callable[[Path], None]) -> Path:
    """A file made from `source` beside it, made again when either has changed since."""
    folder = target.parent
    with locked(folder / ".lock"):
        origin = f"from {source.name} {_state(source)}"
        if not (target.is_file() and _recall(folder).get(target.name) == [origin, *_state(target)]):
            write_whole(target, make)
            _remember(folder, target.name, origin)
    return target


def make_once(folder: Path, version: int, make: Callable[[Path], None]) -> None:
    """Let `make` fill a folder if it is not there in this version; any number of processes may ask.

    The files appear all at once, with a manifest of their sha256, which is checked on every call.
    """
    with locked(folder.parent / f".{folder.name}.lock"):
        if not folder.exists() or _manifest(folder)["version"] != version:
            for left in folder.parent.glob(f".{folder.name}.making-*"):
                shutil.rmtree(left)  # of a process that was killed: we hold the lock, nobody is in there
            made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.making-"))
            try:
                make(made)
                sums = {path.name: _digest(path, "sha256") for path in sorted(made.iterdir())}
                text = json.dumps({"version": version, "sha256": sums}, indent=1)
                (made / MANIFEST).write_text(text + "\n")
                made.chmod(0o755)
                if folder.exists():
                    shutil.rmtree(folder)
                made.rename(folder)
            except BaseException:
                shutil.rmtree(made, ignore_errors=True)
                raise
    check(folder, _manifest(folder)["sha256"], f"delete the folder {folder} to have it made again")


def present(folder: Path, names: list[str]) -> bool:
    """Whether the folder has the files: all (True) or none (False); a part of them is an error."""
    missing = [name for name in names if not (folder / name).is_file()]
    if missing and len(missing) < len(names):
        raise DataError(
            f"{folder} has only a part of the data set, without {', '.join(missing)}; add the missing files,"
            " or remove the others to use the built-in drawn set"
        )
    return not missing


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text())
        if isinstance(manifest["version"], int) and isinstance(manifest["sha256"], dict):
            return dict(manifest)
        raise KeyError("version, sha256")
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise CorruptFileError(
            f"{path} is missing or no manifest; delete the folder {folder} to have it made again"
        ) from e


def _state(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _digest(path: Path, algorithm: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def _recall(folder: Path) -> dict[str, list[Any]]:
    """What is remembered of the folder; nothing if it was never checked or the notes are damaged."""
    try:
        notes = json.loads((folder / _REMEMBERED).read_text())
    except (OSError, ValueError):
        return {}
    return notes if isinstance(notes, dict) else {}


def _remember(folder: Path, name: str, note: str) -> None:
    notes = _recall(folder) | {name: [note, *_state(folder / name)]}
    write_whole(folder / _REMEMBERED, lambda path: _write_json(path, notes))


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")
