"""Data generators: what they write, what they refuse, and how quickly they start."""

# SPDX-License-Identifier: Apache-2.0
import io
import resource
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from argosy.distributed import fleet
from argosy.engine.errors import ConfigError, DataError
from tests.ranks import clean_environ


def generator(base: type, make: Callable[[Any], Any]) -> Any:
    """A generator whose line becomes `make(line)`, once."""

    class Made(base):  # type: ignore[misc]  # one of three bases
        def generate_sample(self, line: str | None) -> Callable[[], Iterator[Any]]:
            def samples() -> Iterator[Any]:
                yield make(line)

            return samples

    return Made()


def written(initializer: Any, text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    monkeypatch.setattr(sys, "stdout", out)
    initializer.run_from_stdin()
    return out.getvalue()


def test_a_sample_is_a_line_of_counts_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = generator(
        fleet.MultiSlotDataGenerator,
        lambda line: [("words", [int(w) for w in line.split()]), ("label", [0.5])],
    )
    assert written(reader, "1926 8 17\n5\n", monkeypatch) == "3 1926 8 17 1 0.5\n1 5 1 0.5\n"
    assert reader._proto_info == [("words", "uint64"), ("label", "float")]


def test_a_slot_is_of_floats_once_a_float_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = generator(fleet.MultiSlotDataGenerator, lambda line: [("x", [eval(line)])])
    written(reader, "1\n1.5\n2\n", monkeypatch)
    assert reader._proto_info == [("x", "float")]


@pytest.mark.parametrize("kind", ["MultiSlotDataGenerator", "MultiSlotStringDataGenerator"])
def test_a_zip_is_a_sample_too(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value: list[Any] = ["7"] if "String" in kind else [7]
    reader = generator(getattr(fleet, kind), lambda line: zip(["a", "b"], [value, value], strict=True))
    assert written(reader, "x\n", monkeypatch) == "1 7 1 7\n"


def test_texts_are_written_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = generator(fleet.MultiSlotStringDataGenerator, lambda line: [("a", line.split())])
    assert written(reader, "07 1e3\n", monkeypatch) == "2 07 1e3\n"


def test_none_is_left_out_and_batches_go_through_generate_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = generator(
        fleet.MultiSlotDataGenerator, lambda line: [("x", [int(line)])] if line != "0\n" else None
    )
    seen = []

    def backwards(samples: list[Any]) -> Callable[[], Iterator[Any]]:
        seen.append(len(samples))
        return lambda: reversed(samples)

    reader.generate_batch = backwards
    reader.set_batch(2)
    assert written(reader, "1\n0\n2\n3\n", monkeypatch) == "1 2\n1 1\n1 3\n"
    assert seen == [2, 1]


def test_samples_may_come_from_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = generator(fleet.MultiSlotDataGenerator, lambda line: [("x", [int(line is None)])])
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    reader.run_from_memory()
    assert out.getvalue() == "1 1\n"


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ("x", "a sample is a str"),
        ([(5, [1])], "the name of a slot is 5"),
        ([("x", 1)], "slot 'x' has 1; give a list"),
        ([("x", [])], "slot 'x' has \\[\\]; give a list of at least one number"),
        ([("x", ["1"])], "slot 'x' has '1'; give numbers"),
        ([("x", [True])], "slot 'x' has True; give numbers"),
    ],
)
def test_a_wrong_sample_is_refused(sample: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=message):
        written(generator(fleet.MultiSlotDataGenerator, lambda line: sample), "x\n", monkeypatch)


def test_all_samples_have_the_same_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = generator(fleet.MultiSlotDataGenerator, lambda line: [(line.strip(), [1])])
    with pytest.raises(DataError, match=r"has the slots \['b'\], earlier ones \['a'\]"):
        written(reader, "a\nb\n", monkeypatch)


def test_what_is_missing_is_said() -> None:
    with pytest.raises(NotImplementedError, match="generate_sample is missing"):
        fleet.MultiSlotDataGenerator().generate_sample("x")
    with pytest.raises(NotImplementedError, match="use MultiSlotDataGenerator"):
        fleet.DataGenerator()._gen_str([])
    with pytest.raises(ConfigError, match="set_batch\\(0\\)"):
        fleet.DataGenerator().set_batch(0)


READER = """
    import sys
    import {name}
    import {name}.distributed.fleet as fleet
    from {name}.distributed.fleet import MultiSlotDataGenerator

    class Reader(fleet.MultiSlotDataGenerator):
        def generate_sample(self, line):
            def samples():
                yield [("x", [int(line)])]
            return samples

    Reader().run_from_stdin()
    assert "torch" not in sys.modules and "numpy" not in sys.modules
"""


@pytest.mark.parametrize("name", ["argosy", "paddle"])
def test_a_reader_starts_without_torch(name: str, tmp_path: Path) -> None:
    script = tmp_path / "reader.py"
    script.write_text(textwrap.dedent(READER.format(name=name)))
    environ = clean_environ()
    if name == "paddle":
        modules = Path(fleet.__file__).parent / "pipe_modules"
        environ["PYTHONPATH"] = f"{modules}:{environ['PYTHONPATH']}"
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    completed = subprocess.run(
        [sys.executable, str(script)],
        input="5\n",
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, "1 5\n", "")
    # Of CPU time: 0.1 s, and more than a second with torch.
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 1.0


@pytest.mark.slow
def test_importing_the_files_hides_none_of_the_objects(tmp_path: Path) -> None:
    code = (
        "import argosy.distributed.fleet.base.util_factory, argosy.distributed.fleet.base.fleet_base\n"
        "from argosy.distributed import fleet\n"
        "assert isinstance(fleet.util, fleet.UtilBase), fleet.util\n"
        "assert isinstance(fleet.fleet, fleet.Fleet), fleet.fleet\n"
        "from argosy.distributed.fleet import fleet, util, metrics, init, dataset\n"
        "assert fleet.util is util\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], env=clean_environ(), check=True)
