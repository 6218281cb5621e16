"""Files of tensors (.pdparams, __vars__) with changed bytes or headers: a clear error, or the same tensors."""

# SPDX-License-Identifier: Apache-2.0
import json
import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from argosy import static
from argosy.engine.errors import ArgosyError
from argosy.engine.runtime import atomic_files
from tests.fuzz.mutate import INTS, changed_bytes

TENSORS = {"w": torch.arange(12.0).reshape(3, 4), "n": torch.tensor([1, 2]), "e": torch.empty(0, 2)}
COUNT = 400


def saved(path: Path) -> bytes:
    sums = atomic_files.checksums(TENSORS)
    atomic_files.replace_files({path: atomic_files.tensor_writer(TENSORS, sums, atomic_files.save_id(sums))})
    return path.read_bytes()


def with_header(data: bytes, random: Random) -> bytes:
    """Another shape, dtype, offset or metadata in the header, whose length is right again."""
    (length,) = struct.unpack("<Q", data[:8])
    header: dict[str, Any] = json.loads(data[8 : 8 + length])
    entry = header[random.choice(list(header))]
    key = random.choice(list(entry))
    entry[key] = random.choice(
        [*INTS, "F64", "U8", [], [0, 1 << 40], [1 << 62, 8], [-1], None, {}, "x" * 300]
    )
    text = json.dumps(header).encode()
    return struct.pack("<Q", random.choice((len(text),) * 5 + (1 << 40,))) + text + data[8 + length :]


def read(path: Path) -> bool:
    """False: a clear error. True: the tensors that were saved; what changed is not about them."""
    try:
        actual, _ = atomic_files.read_tensors(path)
    except ArgosyError:
        return False
    assert actual.keys() == TENSORS.keys()
    assert all(torch.equal(actual[name], value) for name, value in TENSORS.items())
    return True


@pytest.mark.parametrize("change", [changed_bytes, with_header], ids=["bytes", "header"])
def test_a_changed_file_is_rejected_or_has_the_same_tensors(tmp_path: Path, change: Any) -> None:
    path, random = tmp_path / "tensors", Random(1)
    data = saved(path)
    assert read(path)
    rejected = 0
    for _ in range(COUNT):
        path.write_bytes(change(data, random))
        rejected += not read(path)
    assert rejected > COUNT / 2


def test_load_vars_names_the_file(tmp_path: Path) -> None:
    saved(tmp_path / "__vars__")
    data = (tmp_path / "__vars__").read_bytes()
    (tmp_path / "__vars__").write_bytes(data[:-3])
    static.default_main_program().state("w", [3, 4], "float32")
    with pytest.raises(ArgosyError, match="__vars__"):
        static.load_vars(None, str(tmp_path))
