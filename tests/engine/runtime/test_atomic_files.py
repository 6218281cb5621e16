"""Files on disk: writes are atomic; truncated, altered or foreign files are rejected."""

# SPDX-License-Identifier: Apache-2.0
import json
import os
import pickle
import random
import resource
import threading
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from argosy.engine.errors import ConfigError, CorruptFileError
from argosy.engine.runtime import atomic_files
from tests.ranks import ForkServer

ANY_FIXTURE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.complex64,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
]


def write(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    sums = atomic_files.checksums(tensors)
    atomic_files.replace_files({path: atomic_files.tensor_writer(tensors, sums, atomic_files.save_id(sums))})


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(
        a[n].dtype == b[n].dtype
        and a[n].shape == b[n].shape
        and atomic_files.checksums(a) == atomic_files.checksums(b)
        for n in a
    )


# --- tensors ------------------------------------------------------------------------------------------


@ANY_FIXTURE
@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8).filter(
            lambda s: s != "__metadata__"
        ),
        st.tuples(st.lists(st.integers(0, 4), max_size=4), st.sampled_from(DTYPES), st.integers(0, 99)),
        max_size=5,
    )
)
def test_tensors_come_back_bit_equal(tmp_path: Path, wanted: dict[str, Any]) -> None:
    tensors = {}
    for name, (shape, dtype, seed) in wanted.items():
        values = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 50
        tensors[name] = values.to(dtype)
    write(tmp_path / "t", tensors)
    actual, _ = atomic_files.read_tensors(tmp_path / "t")
    assert same(actual, tensors)


def test_nan_and_negative_zero_keep_their_bits(tmp_path: Path) -> None:
    bits = torch.tensor([0x7FC00001, -0x80000000, 0x7F800000], dtype=torch.int32)
    write(tmp_path / "t", {"x": bits.view(torch.float32)})
    assert torch.equal(atomic_files.read_tensors(tmp_path / "t")[0]["x"].view(torch.int32), bits)


def test_memory_formats_strides_and_shared_memory_do_not_matter(tmp_path: Path) -> None:
    buffer = torch.arange(720.0)
    tensors = {
        "channels_last": buffer[:240].reshape(2, 3, 5, 8).to(memory_format=torch.channels_last),
        "turned": buffer.reshape(30, 24).t()[1:],
        "view": buffer[100:200],
        "same": buffer[100:200],
        "all": buffer,
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }
    write(tmp_path / "t", tensors)
    actual, _ = atomic_files.read_tensors(tmp_path / "t")
    assert all(torch.equal(actual[name], tensors[name]) for name in tensors)
    assert all(value.is_contiguous() for value in actual.values())


def test_what_was_read_is_memory_of_its_own(tmp_path: Path) -> None:
    write(tmp_path / "t", {"x": torch.ones(1000)})
    actual = atomic_files.read_tensors(tmp_path / "t")[0]["x"]
    with (tmp_path / "t").open("r+b") as file:
        file.truncate(0)
    actual += 1
    assert actual.sum() == 2000


def test_the_file_is_plain_safetensors_and_the_same_for_the_same_tensors(tmp_path: Path) -> None:
    tensors = {"b": torch.ones(3), "a": torch.zeros(2, dtype=torch.bfloat16)}
    write(tmp_path / "one", tensors)
    write(tmp_path / "two", tensors)
    assert safetensors.torch.load_file(tmp_path / "one").keys() == tensors.keys()
    assert (
        atomic_files.read_tensors(tmp_path / "one")[1] == atomic_files.read_tensors(tmp_path / "two")[1] != ""
    )


def test_a_dtype_that_safetensors_lacks_is_named() -> None:
    with pytest.raises(ConfigError, match="'z' is complex128"):
        atomic_files.tensor_writer({"z": torch.zeros(1, dtype=torch.complex128)}, {}, "")


# --- damage -------------------------------------------------------------------------------------------


def tiny() -> dict[str, torch.Tensor]:
    return {"w": torch.tensor([1.0, -2.0]), "n": torch.tensor([3])}


def test_a_tensor_file_truncated_at_any_length_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "whole", tiny())
    whole = (tmp_path / "whole").read_bytes()
    for length in range(len(whole)):
        (tmp_path / "cut").write_bytes(whole[:length])
        with pytest.raises(CorruptFileError, match="cut"):
            atomic_files.read_tensors(tmp_path / "cut")


@settings(parent=ANY_FIXTURE, max_examples=100)
@given(st.data())
def test_a_tensor_file_with_altered_bytes_is_refused_or_gives_the_same(
    tmp_path: Path, data: st.DataObject
) -> None:
    write(tmp_path / "whole", tiny())
    content = bytearray((tmp_path / "whole").read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / "altered").write_bytes(content)
    try:
        actual, _ = atomic_files.read_tensors(tmp_path / "altered")
    except CorruptFileError:
        return
    assert same(actual, tiny())


def test_the_altered_tensor_is_named(tmp_path: Path) -> None:
    write(tmp_path / "t", tiny())
    content = bytearray((tmp_path / "t").read_bytes())
    content[-1] ^= 1
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(
        CorruptFileError, match=r"t: 'w' \(float32\[2\]\) does not match its sha256.*; take an intact"
    ):
        atomic_files.read_tensors(tmp_path / "t")


def test_files_of_another_format_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(pickle.dumps({"w": [1.0]}))
    with pytest.raises(CorruptFileError, match=r"not a valid safetensors file.*pickles"):
        atomic_files.read_tensors(path)
    safetensors.torch.save_file(tiny(), path)
    with pytest.raises(CorruptFileError, match=r"format None, not 'argosy.tensors'"):
        atomic_files.read_tensors(path)
    path.write_bytes(b"")
    with pytest.raises(CorruptFileError):
        atomic_files.read_tensors(path)


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    heads = {
        "format": atomic_files.TENSORS,
        "version": str(atomic_files.VERSION + 1),
        "sha256": "{}",
        "save_id": "",
    }
    safetensors.torch.save_file({}, tmp_path / "t", heads)
    with pytest.raises(CorruptFileError, match=r"version '2'.*reads version 1; load it with"):
        atomic_files.read_tensors(tmp_path / "t")
    sealed = json.loads(atomic_files.seal({}))
    with pytest.raises(CorruptFileError, match="version 7"):
        atomic_files.unseal(json.dumps({**sealed, "version": 7}).encode(), "m")


def test_tensors_that_were_added_or_taken_away_are_noticed(tmp_path: Path) -> None:
    sums = atomic_files.checksums(tiny())
    atomic_files.replace_files({tmp_path / "t": atomic_files.tensor_writer({"w": tiny()["w"]}, sums, "")})
    with pytest.raises(CorruptFileError, match="names of the tensors"):
        atomic_files.read_tensors(tmp_path / "t")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no file .*nothing"):
        atomic_files.read_tensors(tmp_path / "nothing")


# --- JSON ---------------------------------------------------------------------------------------------

CONTENT = {"name": "müller\ud800", "numbers": [1, -0.0, 1e-300, 10**40], "none": None}


def test_sealed_content_comes_back() -> None:
    assert repr(atomic_files.unseal(atomic_files.seal(CONTENT), "m")) == repr(CONTENT)


def test_sealed_content_truncated_at_any_length_is_refused() -> None:
    whole = atomic_files.seal(CONTENT).rstrip(b"\n")
    for length in range(len(whole)):
        with pytest.raises(CorruptFileError, match=r"m\.pdmodel"):
            atomic_files.unseal(whole[:length], "m.pdmodel")


@settings(parent=ANY_FIXTURE, max_examples=100)
@given(st.data())
def test_sealed_content_with_altered_bytes_is_refused_or_gives_the_same(data: st.DataObject) -> None:
    content = bytearray(atomic_files.seal(CONTENT))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        actual = atomic_files.unseal(bytes(content), "m")
    except CorruptFileError:
        return
    assert repr(actual) == repr(CONTENT)


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xfe", b"3", b"[]", b"{}", b"[" * 100_000, b'{"format": "x"}', b"NaN"]
)
def test_what_is_no_sealed_content_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptFileError):
        atomic_files.unseal(data, "m")


# --- atomicity ----------------------------------------------------------------------------------------


def test_what_a_writer_at_work_has_is_left_to_it(tmp_path: Path) -> None:
    path = tmp_path / "a"

    def write_slowly(inner: Path) -> None:
        inner.write_bytes(b"slow")
        atomic_files.finish(path, lambda p: True)
        atomic_files.replace_files({path: atomic_files.bytes_writer(b"fast")})
        assert path.read_bytes() == b"fast"

    atomic_files.replace_files({path: write_slowly})
    assert path.read_bytes() == b"slow"
    assert os.listdir(tmp_path) == ["a"]


def fails(path: Path) -> None:
    path.write_bytes(b"half")
    raise RuntimeError("no more")


def test_a_writer_that_fails_leaves_all_old_files_and_nothing_else(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    atomic_files.replace_files(
        {one: atomic_files.bytes_writer(b"old 1"), two: atomic_files.bytes_writer(b"old 2")}
    )
    with pytest.raises(RuntimeError, match="no more"):
        atomic_files.replace_files({one: atomic_files.bytes_writer(b"new 1"), two: fails})
    assert (one.read_bytes(), two.read_bytes()) == (b"old 1", b"old 2")
    assert sorted(os.listdir(tmp_path)) == ["one", "two"]


def test_folders_are_made_and_files_are_readable_as_usual(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "t"
    write(path, tiny())
    (tmp_path / "usual").touch()
    assert path.stat().st_mode == (tmp_path / "usual").stat().st_mode
    assert os.listdir(path.parent) == ["t"]


def test_names_with_stars_and_brackets_are_only_names(tmp_path: Path) -> None:
    write(tmp_path / "t[1]*", tiny())
    write(tmp_path / "t1", tiny())
    assert sorted(os.listdir(tmp_path)) == ["t1", "t[1]*"]


def test_a_removed_file_takes_its_left_over_files_and_its_empty_folder_along(tmp_path: Path) -> None:
    target, other = tmp_path / "step" / "part", tmp_path / "step" / "other"
    write(target, {"a": torch.ones(2)})
    write(other, {"a": torch.ones(2)})
    left = target.parent / ".part.0123456789abcdef.tmp"
    left.mkdir()
    (left / "data").write_bytes(b"half")
    atomic_files.remove(target)
    assert [p.name for p in target.parent.iterdir()] == ["other"]
    atomic_files.remove(other)
    assert not target.parent.exists()
    atomic_files.remove(other)  # there is nothing left to do


def test_the_save_of_a_file_is_known_without_reading_its_tensors(tmp_path: Path) -> None:
    write(tmp_path / "a", {"a": torch.ones(2)})
    data = (tmp_path / "a").read_bytes()
    assert atomic_files.read_save_id(tmp_path / "a") == atomic_files.save_id(
        atomic_files.checksums({"a": torch.ones(2)})
    )
    for damaged in (data[:40], b"", b"{}" * 50):
        (tmp_path / "b").write_bytes(damaged)
        with pytest.raises(CorruptFileError):
            atomic_files.read_save_id(tmp_path / "b")
    with pytest.raises(CorruptFileError):
        atomic_files.read_save_id(tmp_path / "none")


def test_many_writers_of_one_file_leave_one_whole_file(tmp_path: Path) -> None:
    contents = [{"x": torch.full((5000,), float(i))} for i in range(6)]
    threads = [threading.Thread(target=write, args=(tmp_path / "t", c)) for c in contents for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    actual, _ = atomic_files.read_tensors(tmp_path / "t")
    assert any(same(actual, content) for content in contents)
    assert os.listdir(tmp_path) == ["t"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    write(tmp_path / "t", tiny())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))  # no file may grow beyond this
    try:
        with pytest.raises(OSError, match="cannot be written.*free disk space"):
            write(tmp_path / "t", {"x": torch.ones(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert same(atomic_files.read_tensors(tmp_path / "t")[0], tiny())
    assert os.listdir(tmp_path) == ["t"]


KILLED = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from argosy.engine.runtime import atomic_files

torch.set_num_threads(1)
folder, draw = Path(sys.argv[1]), random.Random(sys.argv[2])
paths = [folder / "m.pdparams", folder / "m.pdopt"]
rename = os.replace

def save(version):
    files = {p: {"x": torch.full((20_000,), float(version)), p.name: torch.tensor(version)} for p in paths}
    sums = {p: atomic_files.checksums(t) for p, t in files.items()}
    saved = atomic_files.save_id(*sums.values())
    atomic_files.replace_files({p: atomic_files.tensor_writer(t, sums[p], saved) for p, t in files.items()})

def save_until_killed(version, renames):
    done = []
    def counted(source, target):
        if len(done) == renames:
            os.kill(os.getpid(), signal.SIGKILL)
        done.append(target)
        rename(source, target)
    os.replace = counted
    while True:
        version += 1
        save(version)

began = time.perf_counter()
save(0)
span = 3 * (time.perf_counter() - began)
last, left, mixed = 0, 0, 0
for turn in range(int(sys.argv[3])):
    renames = turn if turn < 4 else -1  # first at each rename, then at any moment
    child = os.fork()
    if child == 0:
        save_until_killed(last, renames)
    if renames < 0:
        time.sleep(draw.uniform(0, span))
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    left += len(os.listdir(folder)) > 2
    for p in paths:
        values, _ = atomic_files.read_tensors(p)
        version = int(values[p.name])
        assert torch.equal(values["x"], torch.full((20_000,), float(version))), p
        assert version >= last, (p, version, last)
    values, saved = atomic_files.read_tensors(paths[0])
    mixed += atomic_files.read_tensors(paths[1])[1] != saved
    atomic_files.finish(paths[1], lambda p: atomic_files.read_tensors(p)[1] == saved)
    last = int(values["m.pdparams"])
    assert int(atomic_files.read_tensors(paths[1])[0]["m.pdopt"]) == last, "the set is not whole"
for path in folder.iterdir():
    os.utime(path, (0, 0))  # an empty folder that is new may be of a writer that is just starting
save(last + 1)
print(last, left, mixed, len(os.listdir(folder)))
"""


def test_a_kill_in_the_middle_leaves_the_old_or_the_new_files_whole(
    tmp_path: Path, ranks: ForkServer
) -> None:
    done = ranks.python("-c", KILLED, str(tmp_path), str(random.random()), "40", timeout_s=120.0)
    assert done.returncode == 0, done.stderr
    last, left, mixed, files = map(int, done.stdout.split())
    assert last > 5
    assert left > 3, "no kill came while something was being written: the test shows nothing"
    assert mixed >= 2, "no kill came between two renames"
    assert files == 2
