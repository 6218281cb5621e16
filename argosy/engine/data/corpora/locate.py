"""Where the files of a data set are: given by the caller, in the cache folder, or generated in the same format."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from argosy.engine import env
from argosy.engine.data import checked_files
from argosy.engine.errors import ConfigError, DataError


@dataclass(frozen=True)
class Source:
    """The files of a data set, with their checksums, and how to generate small ones in the same format."""

    name: str
    checksums: Mapping[str, str]
    """md5 of each file."""
    items: str
    """What the generated files contain, for the log: "reviews"."""
    draw: Callable[[Path], None]
    """Writes generated files of the same names into a folder."""
    subfolder: str | None = None
    """The folder below `<cache>/dataset`; default: the name."""
    version: int = 1
    """Of the generated files; another version generates them again."""

    def folder(self) -> Path:
        """The folder with the files in `<cache>/dataset`, checked, or else with generated ones."""
        folder = env.cache_dir() / "dataset" / (self.subfolder or self.name)
        return checked_files.checked_or_drawn(
            folder, self.checksums, self.name, self.items, self.version, self.draw
        )

    def file(self, given: str | Path | None = None, download: bool = True, name: str | None = None) -> Path:
        """The path of a file: `given` by the caller, or the one of this `name` (default: the only one).

        `download=False` is Paddle's demand that the caller gives the file.
        """
        if given is not None:
            if not Path(given).is_file():
                raise DataError(f"{self.name}: there is no file {given}; give the path of the original file")
            return Path(given)
        if not download:
            raise ConfigError(
                f"{self.name}: no file is given and download=False; give the file, or leave out download"
            )
        return self.folder() / (name or next(iter(self.checksums)))
