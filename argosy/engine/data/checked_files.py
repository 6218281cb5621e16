"""Files of a data set, verified by checksum, and created or unpacked once for all processes.

A checksum is computed once per file and cached in `.checked.json` next to it, with the file's size and modification
time: while those stay the same, the next start trusts it. A process that creates or checks files in a folder holds a
lock (`flock`, which the kernel releases if the process is killed).
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import functools
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from argosy.engine import env, files
from argosy.engine.errors import CorruptFileError, DataError
from argosy.engine.files import replacement
from argosy.engine.log import logger

MANIFEST = "manifest.json"
_CHECKED = ".checked.json"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path`; other processes block until it is released."""
    with contextlib.ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(files.locked(path))
        except OSError as e:
            raise DataError(
                f"cannot write in {path.parent} ({e.strerror}), where a data set is checked and unpacked; make it"
                " writable, or set ARGOSY_CACHE to a folder that is"
            ) from e
        yield


def check(folder: Path, checksums: Mapping[str, str], what_to_do: str) -> None:
    """Raise CorruptFileError if a file is missing or has another checksum (md5 or sha256, by its length)."""
    with locked(folder / ".lock"):
        checked = _load_checked(folder)
        for name, expected in checksums.items():
            path = folder / name
            if not path.is_file():
                raise CorruptFileError(f"{path} is missing; {what_to_do}")
            if checked.get(name) == [expected, *_state(path)]:
                continue
            actual = _digest(path, "md5" if len(expected) == 32 else "sha256")
            if actual != expected:
                raise CorruptFileError(
                    f"{path} ({path.stat().st_size} bytes) has checksum {actual}, not {expected}: it is"
                    f" truncated or altered; {what_to_do}"
                )
            _record_checked(folder, name, expected)


def checked_or_drawn(
    folder: Path,
    checksums: Mapping[str, str],
    name: str,
    images: str,
    version: int,
    draw: Callable[[Path], None],
) -> Path:
    """The folder, if it has the files of the data set `name`, checked; else one with `images` that `draw` generates."""
    if present(folder, list(checksums)):
        advice = f"replace it with the original file, or remove all {len(checksums)} to use the built-in drawn {images}"
        check(folder, checksums, advice)
        return folder
    drawn = folder.with_name(f"{name}-drawn")
    _warn_drawn(name, images, drawn, folder, ", ".join(checksums))
    create_once(drawn, version, draw)
    return drawn


@functools.cache
def _warn_drawn(name: str, images: str, drawn: Path, folder: Path, missing: str) -> None:
    """Warn once, on rank 0, that this is not the real data set."""
    log = logger.warning if env.rank_and_size()[0] == 0 else logger.debug
    log(
        "the files of %s (%s) are not in %s: using the built-in drawn %s of %s",
        name,
        missing,
        folder,
        images,
        drawn,
    )


def derive(source: Path, target: Path, make: Callable[[Path], None]) -> Path:
    """A file derived from `source`, created again if either has changed since."""
    folder = target.parent
    with locked(folder / ".lock"):
        origin = f"from {source.name} {_state(source)}"
        if not (target.is_file() and _load_checked(folder).get(target.name) == [origin, *_state(target)]):
            with replacement(target) as temporary:
                make(temporary)
            _record_checked(folder, target.name, origin)
    return target


def create_once(folder: Path, version: int, make: Callable[[Path], None]) -> None:
    """Create a folder with `make` unless it exists in this version; any number of processes may call this.

    The files appear atomically, with a manifest of their sha256, which is checked on every call.
    """
    with locked(folder.parent / f".{folder.name}.lock"):
        if not folder.exists() or _manifest(folder)["version"] != version:
            for left in folder.parent.glob(f".{folder.name}.making-*"):
                shutil.rmtree(left)  # of a killed process: no other process writes it while we hold the lock
            temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.making-"))
            try:
                make(temporary)
                sums = {path.name: _digest(path, "sha256") for path in sorted(temporary.iterdir())}
                text = json.dumps({"version": version, "sha256": sums}, indent=1)
                (temporary / MANIFEST).write_text(text + "\n")
                temporary.chmod(0o755)
                if folder.exists():
                    shutil.rmtree(folder)
                temporary.rename(folder)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
    check(folder, _manifest(folder)["sha256"], f"delete the folder {folder} to have it created again")


def present(folder: Path, names: list[str]) -> bool:
    """Whether the folder has all files (True) or none (False); raises DataError if it has only some."""
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
            f"{path} is missing or not a manifest; delete the folder {folder} to have it created again"
        ) from e


def _state(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns


def _digest(path: Path, algorithm: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def _load_checked(folder: Path) -> dict[str, list[Any]]:
    """The cached checksums of the folder; empty if it was never checked or the cache is corrupt."""
    try:
        entries = json.loads((folder / _CHECKED).read_text())
    except (OSError, ValueError):
        return {}
    return entries if isinstance(entries, dict) else {}


def _record_checked(folder: Path, name: str, origin: str) -> None:
    entries = _load_checked(folder) | {name: [origin, *_state(folder / name)]}
    with replacement(folder / _CHECKED) as temporary:
        temporary.write_text(json.dumps(entries, indent=1) + "\n")
