"""A table against a model, a dict of NumPy rows: any interleaving of calls, snapshots, restores and evictions.

Two tables do the same: one all in memory, one with so little of it that nearly every row goes to disk and comes back.
They are equal bit for bit, and to the model within rounding.
"""

# SPDX-License-Identifier: Apache-2.0
import copy
import tempfile
from pathlib import Path

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from numpy.typing import NDArray
from torch import Tensor

from argosy.engine.ps.table.table import SparseTable
from argosy.engine.ps.table.table_spec import RowInit, RowOptimizer, TableSpec, first_values
from tests.engine.ps.table.snapshots import write_snapshot

DIM, EPSILON = 3, 1e-3
INIT, OPTIMIZER = RowInit("normal", 0.0, 1.0, 5), RowOptimizer("adagrad", {"epsilon": EPSILON})
ID = st.integers(-3, 25)
SOME = st.lists(ID, max_size=12)
DIFFERENT = st.lists(ID, max_size=12, unique=True)
SEED = st.integers(0, 1000)


def tensor(ids: list[int]) -> Tensor:
    return torch.tensor(ids, dtype=torch.int64)


class TableMachine(RuleBasedStateMachine):
    """The model is id -> [value, moment]."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.tables = [self.make(0), self.make(2), self.make(9)]
        self.rows: dict[int, NDArray[np.float64]] = {}
        self.changed: set[int] = set()
        self.marks = [0] * len(self.tables)
        self.saved: tuple[dict[int, NDArray[np.float64]], list[list[str]]] | None = None

    def make(self, memory_rows: int) -> SparseTable:
        spec = TableSpec("emb", DIM, INIT, OPTIMIZER, memory_rows)
        return SparseTable(spec, Path(self.folder.name) / f"rows-{memory_rows}")

    def first(self, row_id: int) -> NDArray[np.float64]:
        return first_values(INIT, "emb", tensor([row_id]), DIM)[0].double().numpy()

    def touch(self, ids: list[int], change: bool) -> list[int]:
        """Create the missing rows; returns the ids."""
        self.changed.update(i for i in ids if change or i not in self.rows)
        for i in ids:
            self.rows.setdefault(i, np.stack([self.first(i), np.zeros(DIM)]))
        return ids

    def expect(self, ids: list[int], create: bool) -> None:
        pulled = [table.pull(tensor(ids), create) for table in self.tables]
        assert all(torch.equal(pulled[0], other) for other in pulled[1:])
        if create:
            self.touch(ids, change=False)
        model = [self.rows[i][0] if i in self.rows else self.first(i) for i in ids]
        np.testing.assert_allclose(pulled[0].numpy(), np.array(model).reshape(-1, DIM), rtol=1e-4, atol=1e-5)

    @rule(ids=SOME)
    def pull(self, ids: list[int]) -> None:
        self.expect(ids, create=True)

    @rule(ids=SOME)
    def read(self, ids: list[int]) -> None:
        self.expect(ids, create=False)

    @rule(ids=SOME)
    def ask_for_ids(self, ids: list[int]) -> None:
        for table in self.tables:
            assert table.contains(tensor(ids)).tolist() == [i in self.rows for i in ids]

    @rule(ids=DIFFERENT, seed=SEED, rate=st.sampled_from([0.0, 0.1]))
    def push(self, ids: list[int], seed: int, rate: float) -> None:
        grads = torch.randn(len(ids), DIM, generator=torch.Generator().manual_seed(seed))
        for table in self.tables:
            table.push(tensor(ids), grads, rate)
        self.touch(ids, change=True)
        for i, grad in zip(ids, grads.double().numpy(), strict=True):
            row = self.rows[i] = self.rows[i].copy()
            row[1] += grad**2
            row[0] -= rate * grad / (np.sqrt(row[1]) + EPSILON)

    @rule(ids=DIFFERENT, seed=SEED)
    def add(self, ids: list[int], seed: int) -> None:
        deltas = torch.randn(len(ids), DIM, generator=torch.Generator().manual_seed(seed))
        for table in self.tables:
            table.add(tensor(ids), deltas)
        self.touch(ids, change=True)
        for i, delta in zip(ids, deltas.double().numpy(), strict=True):
            self.rows[i] = self.rows[i] + np.stack([delta, np.zeros(DIM)])

    @rule(ids=DIFFERENT, value=st.floats(-2, 2, width=32))
    def assign(self, ids: list[int], value: float) -> None:
        for table in self.tables:
            table.assign(tensor(ids), torch.full((len(ids), DIM), value))
        for i in self.touch(ids, change=True):
            self.rows[i] = np.stack([np.full(DIM, value), self.rows[i][1]])

    @rule()
    def ask_for_changes(self) -> None:
        for number, table in enumerate(self.tables):
            ids, rows, self.marks[number] = table.changed_since(self.marks[number])
            assert ids.tolist() == sorted(self.changed)
            assert torch.equal(rows, self.tables[0].pull(ids))
        self.changed = set()

    @rule()
    def snapshot(self) -> None:
        for number, table in enumerate(self.tables):
            write_snapshot(table, Path(self.folder.name) / f"snapshots-{number}")
        self.saved = copy.deepcopy(self.rows), [table.snapshot_files() for table in self.tables]

    @rule(new_process=st.booleans())
    def restore(self, new_process: bool) -> None:
        if self.saved is None:
            return
        for number, (table, names) in enumerate(zip(self.tables, self.saved[1], strict=True)):
            if new_process:
                table.close()
                table = self.tables[number] = self.make(table.spec.memory_rows)  # noqa: PLW2901
            table.restore(Path(self.folder.name) / f"snapshots-{number}", names)
            self.marks[number] = table.changed_since(0)[2]
        self.rows, self.changed = copy.deepcopy(self.saved[0]), set()

    @invariant()
    def has_the_same_ids(self) -> None:
        for table in self.tables:
            assert table.ids().tolist() == sorted(self.rows)
            assert len(table) == len(self.rows)
            limit = table.spec.memory_rows
            assert not limit or len(table._store._rows) <= limit

    def teardown(self) -> None:
        for table in self.tables:
            table.close()
        self.folder.cleanup()


TestTableAgainstItsModel = TableMachine.TestCase
TestTableAgainstItsModel.settings = settings(max_examples=10, stateful_step_count=30, deadline=None)
