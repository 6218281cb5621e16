"""A part of `make coverage-torch` for every test run, of some 20 s: of each group every n-th name, each once.

Torch's databases are imported by the tests, not by this file: it takes seconds, and most workers run none of them.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pytest
import torch
from torch._dynamo import config as fake_tensors

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from tests.torch_db.modules import ModuleSample
    from tests.torch_db.outcome import Record

PARTS = 6
"""Each group of names is divided into so many tests."""
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
    from tests.torch_db.outcome import FAILURES

    bad = [
        f"{r.name} {r.mode} {r.form} {r.sample}: {r.kind}: {r.detail}" for r in records if r.kind in FAILURES
    ]
    assert not bad, "\n".join(bad)


def training_of(group: str, sample: ModuleSample, index: int) -> Iterator[Record]:
    from tests.torch_db.compare import forms
    from tests.torch_db.tasks import Task, module_case

    torch.manual_seed(0)  # as at the start of a test
    form, unknown = list(forms(sample.tree, sample.has_batch).items())[-1]
    return module_case(Task(group, sample.name), sample, index, True, form, unknown).run()


@pytest.mark.parametrize("part", range(PARTS))
def test_modules_of_torch_train_and_infer_as_in_eager_mode(part: int) -> None:
    from tests.torch_db import modules
    from tests.torch_db.compare import forms

    def records() -> Iterator[Record]:
        for name in sorted(modules.MODULES)[::3][part::PARTS]:
            samples = modules.samples(name, training=True, limit=32)
            full = [(i, s) for i, s in enumerate(samples) if "unknown" in forms(s.tree, s.has_batch)]
            index, sample = full[zlib.crc32(name.encode()) % len(full)]
            yield from training_of("modules", sample, index)

    check(records())


@pytest.mark.parametrize("part", range(PARTS))
def test_modules_of_users_train_and_infer_as_in_eager_mode(part: int) -> None:
    from tests.torch_db.pool import run_all
    from tests.torch_db.tasks import Task, own_samples

    def records() -> Iterator[Record]:
        for name in [*sorted(own_samples())[::4], "BatchNorm2d 0 rows"][part::PARTS]:
            if "0 rows" in name:  # a kernel that divides by the number of rows ends the process
                yield from run_all([Task("samples", name)])
            else:
                yield from training_of("samples", own_samples()[name], 0)

    check(records())


@pytest.mark.parametrize("part", range(PARTS))
def test_ops_of_torch_give_values_and_gradients_of_eager_mode(part: int) -> None:
    from tests.torch_db import ops
    from tests.torch_db.compare import forms
    from tests.torch_db.outcome import Record

    def records() -> Iterator[Record]:
        for name in sorted(ops.OPS)[::41][part::PARTS]:
            for index, sample in enumerate(ops.samples(name, limit=2)):
                for form, unknown in forms(sample.tree).items():
                    for mode, outcome in ops.check(sample, unknown):
                        yield Record("ops", name, mode, form, index, outcome.kind, outcome.detail)

    check(records())


@pytest.mark.parametrize("seed", NETS)
def test_a_random_net_trains_and_infers_as_in_eager_mode(seed: int) -> None:
    from tests.torch_db import nets
    from tests.torch_db.tasks import Task, net_cases

    records = [record for case in net_cases(Task("nets", nets.name_of(seed))) for record in case.run()]
    assert [record.mode for record in records] == ["train", "clone", "eval"]
    check(records)


def test_a_net_is_the_same_in_every_call() -> None:
    from tests.torch_db import nets

    first, second = nets.net(NETS[0]), nets.net(NETS[0])
    assert str(first) == str(second)
    state = nets.state_of(second)
    assert all(torch.equal(value, state[key]) for key, value in nets.state_of(first).items())
