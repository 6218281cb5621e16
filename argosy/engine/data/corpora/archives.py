"""Members of tar and zip archives; a truncated or altered archive raises CorruptFileError."""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import gzip
import io
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from argosy.engine.errors import CorruptFileError

_BROKEN = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError)


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Convert the errors of a corrupt file to CorruptFileError."""
    try:
        yield
    except _BROKEN as e:
        raise CorruptFileError(
            f"{path} is truncated or not an archive ({e}); replace it with the original"
        ) from e


def members(path: Path, pattern: str) -> Iterator[tuple[str, bytes]]:
    """(name, contents) of the members whose whole name matches, in the order of the archive (zip: of names)."""
    matches = re.compile(pattern).fullmatch
    with readable(path):
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                yield from ((n, archive.read(n)) for n in sorted(archive.namelist()) if matches(n))
            return
        with tarfile.open(path) as tar:
            for member in tar:
                if member.isfile() and matches(member.name) and (file := tar.extractfile(member)):
                    yield member.name, file.read()


def member(path: Path, pattern: str) -> bytes:
    """The contents of the only member whose name matches."""
    matches = list(members(path, pattern))
    if len(matches) != 1:
        raise CorruptFileError(
            f"{path} has {len(matches)} files like {pattern}, not one; use the original file"
        )
    return matches[0][1]


def lines(path: Path, pattern: str, encoding: str = "utf-8") -> list[str]:
    """The lines of the only member whose name matches, without surrounding blanks."""
    with readable(path):
        return lines_of(member(path, pattern).decode(encoding))


def lines_of(text: str) -> list[str]:
    """Lines end with a newline only (`str.splitlines` knows more separators), without surrounding blanks."""
    return [line.strip() for line in text.removesuffix("\n").split("\n")]


def write_tar(path: Path, contents: Mapping[str, bytes]) -> None:
    """Write a tar archive, gzipped unless its suffix is .tar; equal contents give equal files."""
    with path.open("wb") as file, contextlib.ExitStack() as stack:
        target: BinaryIO = file
        if path.suffix != ".tar":
            target = stack.enter_context(gzip.GzipFile("", "wb", 6, file, mtime=0))  # type: ignore[assignment]
        archive = stack.enter_context(tarfile.open(fileobj=target, mode="w", format=tarfile.USTAR_FORMAT))
        for name, data in contents.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


def write_zip(path: Path, contents: Mapping[str, bytes]) -> None:
    """Write a zip archive; equal contents give equal files."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in contents.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
