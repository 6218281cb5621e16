"""Wide and deep: Criteo's lines, the drawn sample, and a process that learns it."""

# SPDX-License-Identifier: Apache-2.0
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from argosy.engine.errors import DataError
from tests.ranks import ForkServer
from tests.warm_fleetrun import WarmFleetrun

FOLDER = Path(__file__).parent.parent.parent / "examples" / "wide_and_deep"
WHOLE = "\t".join(["1", *(str(i) for i in range(13)), *(f"{i:08x}" for i in range(26))])


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """The modules reader and data of the example; their names are too common to stay on the path."""
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in ("reader", "data"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import data
    import reader

    for name in ("reader", "data"):
        monkeypatch.delitem(sys.modules, name)
    return reader, data


def test_a_line_becomes_scaled_numbers_stable_ids_and_a_label(scripts: tuple[Any, Any]) -> None:
    numbers, ids, label = scripts[0].parse(WHOLE + "\n")
    assert numbers[:3] == [0.0, 4 / 603, 0.02]
    assert len(numbers) == 13
    assert label == 1
    assert ids[:3] == [339285, 383691, 400106]  # the same in every process and on every machine
    assert len(set(ids)) == len(ids) == 26
    assert all(0 <= i < 1_000_001 for i in ids)


def test_missing_fields_are_missing_values(scripts: tuple[Any, Any]) -> None:
    parse = scripts[0].parse
    empty = parse("0" + "\t" * 39)
    assert empty[0] == [0.0] * 13
    assert len(set(empty[1])) == 26  # each slot has its own row for "missing"
    assert parse("0\n") == parse("0\t\t\r\n") == empty
    cut = parse("\t".join(WHOLE.split("\t")[:20]))
    assert cut[0] == parse(WHOLE)[0]
    assert cut[1] == parse(WHOLE)[1][:6] + empty[1][6:]


def test_equal_words_of_two_slots_have_two_rows(scripts: tuple[Any, Any]) -> None:
    _, ids, _ = scripts[0].parse("\t".join(["0"] + [""] * 13 + ["68fd1e64"] * 26))
    assert len(set(ids)) == 26


@pytest.mark.parametrize("line", ["", "2" + WHOLE[1:], WHOLE + "\t1", "x", "a\tb"])
def test_a_line_that_is_none_of_criteos_is_refused(line: str, scripts: tuple[Any, Any]) -> None:
    with pytest.raises(DataError, match="a Criteo line has the label 0 or 1"):
        scripts[0].parse(line + "\n")


def test_a_number_that_is_none_is_refused(scripts: tuple[Any, Any]) -> None:
    with pytest.raises(DataError, match="number 2 of a line is 'many'"):
        scripts[0].parse(WHOLE.replace("\t1\t", "\tmany\t"))


def test_the_reader_prints_slots(scripts: tuple[Any, Any]) -> None:
    done = subprocess.run(
        [sys.executable, FOLDER / "reader.py", "--rows", "97"],
        input=f"{WHOLE}\n0\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    first, second = (line.split() for line in done.stdout.splitlines())
    assert first[0] == second[0] == "13"
    assert first[14::2] == ["1"] * 27
    assert first[15:-2:2] == [str(i) for i in scripts[0].parse(WHOLE, 97)[1]]
    assert (first[-1], second[-1]) == ("1", "0")


@pytest.mark.slow
def test_the_sample_is_drawn_alike_every_time_and_its_best_auc_is_known(scripts: tuple[Any, Any]) -> None:
    reader, data = scripts
    assert data.draw("train", 3, 50)[0] == data.draw("train", 3, 50)[0] != data.draw("test", 3, 50)[0]
    assert data.best_auc() == pytest.approx(data.BEST_AUC, abs=1e-3)
    folder = data.sample()
    assert [len(data.files(folder, name)) for name in ("train", "test")] == [8, 2]
    lines = Path(data.files(folder, "test")[1]).read_text().splitlines()
    assert lines == data.draw("test", 1)[0]
    assert 0.2 < sum(reader.parse(line)[2] for line in lines) / len(lines) < 0.5


def train(ranks: ForkServer, *words: str, launcher: Sequence[str] = ()) -> list[float]:
    """The test AUC after each epoch of a job, without words for fleetrun of a process that trains alone."""
    words = (str(FOLDER / "train.py"), "--table_rows", "20011", *words)
    cache = {"ARGOSY_CACHE": os.environ["ARGOSY_CACHE"]}
    if launcher:
        job = WarmFleetrun(ranks, *launcher, *words, cwd=FOLDER, environ=cache)
        out, err = job.communicate(240.0)
        code = job.returncode
    else:
        done = ranks.python(*words, cwd=FOLDER, timeout_s=240.0, **cache)
        out, err, code = done.stdout, done.stderr, done.returncode
    assert code == 0, out + err
    line = r"^\[Epoch \d\] .* s, training AUC: .*, test loss: .*, test AUC: (.*)$"
    return [float(auc) for auc in re.findall(line, out, re.M)]


@pytest.fixture
def few(tmp_path: Path, scripts: tuple[Any, Any]) -> Path:
    """A folder with two small part files for training and two for testing."""
    for name, part in itertools.product(("train", "test"), range(2)):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / f"part-{part}").write_text("\n".join(scripts[1].draw(name, part, 400)[0]) + "\n")
    return tmp_path


@pytest.mark.slow
def test_one_process_learns_the_sample_from_memory(ranks: ForkServer, tmp_path: Path) -> None:
    first, second = train(ranks, "--dataset", "memory", "--epochs", "2", "--save", str(tmp_path / "model"))
    assert 0.7 < first < second
    assert second > 0.8
    assert (tmp_path / "model" / "__vars__").exists()


@pytest.mark.slow
def test_files_of_ones_own_are_read_inside_the_worker(ranks: ForkServer, few: Path) -> None:
    assert len(train(ranks, "--dataset", "loader", "--epochs", "1", "--data", str(few))) == 1


@pytest.mark.slow
def test_two_workers_train_a_table_on_a_server(ranks: ForkServer, few: Path) -> None:
    launcher = ["--server_num=1", "--worker_num=2", f"--log_dir={few / 'log'}"]
    words = ["--mode", "async", "--epochs", "2", "--data", str(few), "--save", str(few / "model")]
    assert len(train(ranks, *words, launcher=launcher)) == 2
    assert (few / "model" / "SparseFeatFactors_txt").is_dir()
