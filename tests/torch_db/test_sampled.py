"""A part of `make coverage-torch` for every test run, of some 30 s: of each group every n-th name, each once."""

# SPDX-License-Identifier: Apache-2.0
import zlib
from collections.abc import Iterable, Iterator

import pytest
import torch
from torch._dynamo import config as fake_tensors

from tests.torch_db import modules, nets, ops
from tests.torch_db.compare import forms
from tests.torch_db.modules import ModuleSample
from tests.torch_db.outcome import FAILURES, Record
from tests.torch_db.pool import run_all
from tests.torch_db.tasks import Task, module_case, net_cases, own_samples

MODULES = sorted(modules.MODULES)[::2]
SAMPLES = [*sorted(own_samples())[::3], "BatchNorm2d 0 rows"]
OPS = sorted(ops.OPS)[::33]
NETS = (6, 18, 34, 138, 270, 382)
"""Seeds of nets that take less than a second each and have many different pieces between them."""


@pytest.fixture(autouse=True)
def uncached() -> Iterator[None]:
    """Few calls come twice here: torch's cache of shapes costs more than it gives."""
    before, fake_tensors.fake_tensor_cache_enabled = fake_tensors.fake_tensor_cache_enabled, False
    torch.set_num_threads(1)
    yield
    fake_tensors.fake_tensor_cache_enabled = before


def check(records: Iterable[Record]) -> None:
    bad = [f"{r.mode} {r.form} {r.sample}: {r.kind}: {r.detail}" for r in records if r.kind in FAILURES]
    assert not bad, "\n".join(bad)


def training_of(group: str, sample: ModuleSample, index: int) -> Iterator[Record]:
    form, unknown = list(forms(sample.tree, sample.has_batch).items())[-1]
    return module_case(Task(group, sample.name), sample, index, True, form, unknown).run()


@pytest.mark.parametrize("name", MODULES)
def test_a_module_of_torch_trains_and_infers_as_in_eager_mode(name: str) -> None:
    samples = modules.samples(name, training=True, limit=32)
    full = [(i, s) for i, s in enumerate(samples) if "unknown" in forms(s.tree, s.has_batch)]
    index, sample = full[zlib.crc32(name.encode()) % len(full)]
    check(training_of("modules", sample, index))


@pytest.mark.parametrize("name", SAMPLES)
def test_a_module_of_ours_trains_and_infers_as_in_eager_mode(name: str) -> None:
    if "0 rows" in name:  # a kernel that divides by the number of rows ends the process
        check(run_all([Task("samples", name)]))
    else:
        check(training_of("samples", own_samples()[name], 0))


@pytest.mark.parametrize("name", OPS)
def test_an_op_of_torch_gives_values_and_gradients_of_eager_mode(name: str) -> None:
    for index, sample in enumerate(ops.samples(name, limit=2)):
        for form, unknown in forms(sample.tree).items():
            outcomes = ops.check(sample, unknown)
            check(Record("ops", name, mode, form, index, o.kind, o.detail) for mode, o in outcomes)


@pytest.mark.parametrize("seed", NETS)
def test_a_random_net_trains_and_infers_as_in_eager_mode(seed: int) -> None:
    records = [record for case in net_cases(Task("nets", nets.name_of(seed))) for record in case.run()]
    assert [record.mode for record in records] == ["train", "clone", "eval"]
    check(records)


def test_a_net_is_the_same_in_every_call() -> None:
    first, second = nets.net(NETS[0]), nets.net(NETS[0])
    assert str(first) == str(second)
    state = nets.state_of(second)
    assert all(torch.equal(value, state[key]) for key, value in nets.state_of(first).items())
