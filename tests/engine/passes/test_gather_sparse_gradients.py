"""gather_sparse_gradients: which gradients it gathers, which it leaves to all_reduce, and that sums are equal."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest
import torch.nn.functional as F

from argosy import static
from argosy.engine import collective
from argosy.engine.errors import ConfigError
from argosy.engine.ir import names
from argosy.engine.ir.backward import append_backward
from argosy.engine.ir.program import Program, default_main_program, default_startup_program, program_guard
from argosy.engine.ir.serialize import from_dict, to_dict
from argosy.engine.ir.variable import Variable
from argosy.engine.passes.base import Report, run_passes
from argosy.engine.passes.gather_sparse_gradients import GatherSparseGradients
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import Scope, scope_guard
from tests.ranks import ForkServer


def table(
    ids: Variable, name: str = "table", sparse: bool = True, padding_idx: int | None = None
) -> Variable:
    return static.nn.embedding(
        ids, [10, 4], is_sparse=sparse, padding_idx=padding_idx, param_attr=name, dtype="float64"
    )


def feed(name: str = "ids") -> Variable:
    return default_main_program().data(name, [None, None], "int64")


def gather(ranks: int = 2) -> Report:
    """Run the pass on the default program, as fleet does."""
    program = default_main_program()
    gradients = {
        p.node: program.vars[f"{p.name}@GRAD"].node
        for p in program.all_parameters()
        if f"{p.name}@GRAD" in program.vars
    }
    tables = frozenset(p.node for p in program.all_parameters() if p.is_sparse)
    (report,) = run_passes(
        program.graph, [GatherSparseGradients(ranks=ranks, tables=tables, gradients=gradients)]
    )
    program.touch()
    return report


def is_reduced(name: str = "table") -> bool:
    return default_main_program().var(f"{name}@GRAD").node.meta.get("reduced", False)


def test_gathers_what_goes_into_the_gradient_and_marks_it() -> None:
    append_backward((table(feed()) ** 2).sum())
    report = gather()
    assert report == Report(1, "1 lookups in 1 tables gathered over 2 ranks")
    text = str(default_main_program())
    assert "communicate gather_rows = gather_rows(mul_1, ids, dp)" in text
    assert "table@GRAD = embedding_dense_backward(rows, ids_1, 10, -1, False)" in text
    assert is_reduced()


def test_gathers_every_lookup_of_a_table_that_is_used_several_times() -> None:
    a, b = feed("a"), feed("b")
    append_backward((table(a) ** 2).sum() + (table(b) ** 3).sum() + table(a).sum())
    assert gather().changed == 3
    assert is_reduced()


def test_leaves_tables_alone_that_are_not_sparse() -> None:
    append_backward(table(feed(), "dense", sparse=False).sum())
    before = str(default_main_program())
    assert gather() == Report(0, "0 lookups in 0 tables gathered over 2 ranks")
    assert (str(default_main_program()), is_reduced("dense")) == (before, False)


def test_a_table_that_is_the_softmax_weight_too_is_left_to_all_reduce() -> None:
    y = table(feed())
    append_backward((y @ default_main_program().var("table").T).sum())
    before = str(default_main_program())
    report = gather()
    assert report.changed == 0
    assert "table left to all_reduce: " in report.text
    assert "is no lookup's gradient" in report.text
    assert (str(default_main_program()), is_reduced()) == (before, False)


def test_a_gradient_that_the_program_reads_is_left_to_all_reduce() -> None:
    append_backward(table(feed()).sum())
    (default_main_program().var("table@GRAD") ** 2).sum()
    report = gather()
    assert (report.changed, is_reduced()) == (0, False)
    assert "is read by pow_1" in report.text


def test_scaling_by_frequency_is_refused() -> None:
    ids = feed()
    table(ids)
    weight = default_main_program().var("table")
    append_backward(F.embedding(ids, weight, scale_grad_by_freq=True).sum())
    with pytest.raises(ConfigError, match="scale_grad_by_freq divides by how often an id occurs"):
        gather()


def test_one_rank_needs_no_exchange() -> None:
    append_backward(table(feed()).sum())
    before = str(default_main_program())
    assert gather(ranks=1) == Report(0, "one rank: 1 sparse gradients need no gather")
    assert (str(default_main_program()), is_reduced()) == (before, False)


def test_a_second_run_changes_nothing() -> None:
    append_backward(table(feed()).sum())
    gather()
    once = str(default_main_program())
    assert gather().changed == 0
    assert str(default_main_program()) == once


def test_a_rewritten_program_can_be_saved_and_loaded() -> None:
    append_backward(table(feed()).sum())
    gather()
    saved = from_dict(to_dict(default_main_program()))
    assert [n.format_node() for n in saved.graph.nodes] == [
        n.format_node() for n in default_main_program().graph.nodes
    ]
    assert saved.var("table@GRAD").node.meta["reduced"]


def gradient(batches: dict[str, np.ndarray[Any, Any]], rewritten: bool) -> np.ndarray[Any, Any]:
    """Of a table that is looked up twice, once with padding, beside a convolution, which changes layouts."""
    with program_guard(Program("main"), Program("startup")), names.guard(), scope_guard(Scope()):
        image = default_main_program().data("image", [None, 4, 3, 3], "float64")
        pooled = static.nn.conv2d(image, 4, 3).sum()
        rows = table(feed("a"), padding_idx=-1)
        loss = (rows**2).sum() + (table(feed("b")) ** 3).sum() * 2.0 + pooled
        append_backward(loss)
        if rewritten:
            gather(collective.world().size)
        default_startup_program().random_seed = 3
        exe = Executor()
        exe.run(default_startup_program())
        return exe.run(feed=batches, fetch_list=["table@GRAD"])[0]


def as_one_process() -> None:
    """Three ranks have 4, 0 and 1 rows of ids, as one process has 5."""
    collective.connect()
    rng = np.random.default_rng(0)
    whole = {name: rng.integers(0, 10, (5, 3)) for name in ("a", "b")}
    whole["image"] = rng.standard_normal((5, 4, 3, 3))
    mine = {name: np.split(value, [4, 4])[collective.world().rank] for name, value in whole.items()}
    np.testing.assert_allclose(gradient(mine, True), gradient(whole, False), rtol=1e-12)


def test_three_ranks_are_as_one_process_with_all_ids(ranks: ForkServer) -> None:
    ranks.check(3, as_one_process)
