"""paddle.dataset.common: download with a checksum, split a reader into files, read the files of one trainer."""

# SPDX-License-Identifier: Apache-2.0
import glob
import hashlib
import pickle
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from argosy.engine import env
from argosy.engine.data.readers import batch, positive
from argosy.engine.errors import ConfigError, DataError
from argosy.engine.files import replacement
from argosy.engine.log import logger
from argosy.framework.missing import missing

__all__ = ["DATA_HOME", "cluster_files_reader", "download", "md5file", "split"]

DATA_HOME = str(env.cache_dir() / "dataset")
"""The folder of data sets, below ARGOSY_CACHE."""

_ATTEMPTS = 3


def md5file(fname: str) -> str:
    """The md5 of a file, in hexadecimal digits."""
    with open(fname, "rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def download(url: str, module_name: str, md5sum: str, save_name: str | None = None) -> str:
    """The path of a file in DATA_HOME/module_name; downloaded unless it is there with this md5.

    The data sets of this package never call it: a script that does asks for the network by itself.
    """
    path = Path(DATA_HOME, module_name, save_name or url.rpartition("/")[2])
    if path.is_file() and md5file(str(path)) == md5sum:
        return str(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    reason = ""
    for attempt in range(1, _ATTEMPTS + 1):
        logger.info("downloading %s to %s (attempt %d of %d)", url, path, attempt, _ATTEMPTS)
        try:
            with replacement(path) as temporary:
                with urllib.request.urlopen(url) as source, temporary.open("wb") as target:
                    shutil.copyfileobj(source, target)
                if (actual := md5file(str(temporary))) != md5sum:
                    raise OSError(f"the file has md5 {actual}, not {md5sum}")
            return str(path)
        except (OSError, urllib.error.URLError) as e:
            reason = str(e)
    raise DataError(f"cannot download {url}: {reason}; copy the file to {path}")


def split(
    reader: Callable[[], Iterable[Any]],
    line_count: int,
    suffix: str = "%05d.pickle",
    dumper: Callable[[Any, Any], None] = pickle.dump,
) -> None:
    """Write the samples of a reader to files of `line_count` samples each, numbered by `suffix`."""
    if "%" not in suffix:
        raise ConfigError(
            f"split: suffix={suffix!r} has no place for a number; use for example '%05d.pickle'"
        )
    for number, samples in enumerate(batch(reader, positive("line_count", line_count))()):
        with open(suffix % number, "wb") as file:
            dumper(samples, file)


def cluster_files_reader(
    files_pattern: str,
    trainer_count: int,
    trainer_id: int,
    loader: Callable[[Any], Iterable[Any]] = pickle.load,
) -> Callable[[], Iterator[Any]]:
    """A reader of every `trainer_count`-th file that matches the pattern, from number `trainer_id` on.

    The default loader unpickles, which runs code of the file: only for files that you wrote, by `split`.
    """
    if trainer_id not in range(positive("trainer_count", trainer_count)):
        raise ConfigError(
            f"cluster_files_reader: trainer_id={trainer_id} of {trainer_count}; use 0 to count - 1"
        )

    def read() -> Iterator[Any]:
        for name in sorted(glob.glob(files_pattern))[trainer_id::trainer_count]:
            with open(name, "rb") as file:
                yield from loader(file)

    return read


__getattr__ = missing(__name__, globals())
