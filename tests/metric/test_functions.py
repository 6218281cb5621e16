"""accuracy and auc as parts of a program."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy import static
from argosy.engine.errors import ConfigError, ProgramError
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.runtime.scope import Scope, global_scope, scope_guard
from argosy.metric import accuracy, auc

Array = np.ndarray[Any, Any]


# --- accuracy -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("label_shape", [[None, 1], [None]])
def test_accuracy_counts_labels_among_the_k_best(k: int, label_shape: list[int | None]) -> None:
    out = accuracy(static.data("x", [None, 5]), static.data("y", label_shape, "int64"), k)
    assert out.shape == (1,)
    assert out.name == "accuracy_0.tmp_0"
    for batch in (8, 3):
        random = np.random.default_rng(batch)
        x, y = random.random((batch, 5)).astype("float32"), random.integers(0, 5, batch)
        best = np.argsort(-x, axis=1)[:, :k]
        fetched = static.Executor().run(
            feed={"x": x, "y": y.reshape([batch, *label_shape[1:]])}, fetch_list=[out]
        )
        assert fetched[0].item() == pytest.approx((best == y[:, None]).any(1).mean())
        assert fetched[0].dtype == np.float32


def test_accuracy_writes_its_counts_to_variables() -> None:
    x, y = static.data("x", [None, 2]), static.data("y", [None, 1], "int64")
    counts = [static.create_global_var([1], 0, "int32", name=n) for n in ("correct", "total")]
    accuracy(x, y, correct=counts[0], total=counts[1])
    exe = static.Executor()
    exe.run(static.default_startup_program())
    feed = {"x": np.array([[0, 1], [0, 1], [1, 0]], dtype="float32"), "y": np.array([[1], [0], [0]])}
    assert [v.item() for v in exe.run(feed=feed, fetch_list=counts)] == [2, 3]


def test_accuracy_does_not_stand_in_the_way_of_gradients() -> None:
    x = static.data("x", [None, 2])
    hidden = static.nn.fc(x, 2)
    accuracy(hidden, static.data("y", [None, 1], "int64"))
    assert len(static.append_backward((hidden * hidden).mean())) == 2


def test_accuracy_needs_a_guess() -> None:
    with pytest.raises(ConfigError, match="k=0 is less than 1"):
        accuracy(static.data("x", [None, 2]), static.data("y", [None, 1], "int64"), 0)


# --- auc ----------------------------------------------------------------------------------------------------


def exact_auc(scores: Array, labels: Array) -> float:
    """The share of (positive, negative) pairs in the right order, ties counting a half."""
    positive, negative = scores[labels == 1], scores[labels == 0]
    if not len(positive) or not len(negative):
        return 0.0
    difference = positive[:, None] - negative[None, :]
    return float((difference > 0).mean() + 0.5 * (difference == 0).mean())


def sample(batch: int, seed: int) -> tuple[Array, Array]:
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, (batch, 1))
    scores = np.clip(random.normal(0.4 + 0.2 * labels, 0.2), 0, 1).astype("float32")
    return scores, labels


def feed(scores: Array, labels: Array) -> dict[str, Array]:
    return {"p": np.concatenate([1 - scores, scores], 1), "y": labels}


def build(**arguments: Any) -> Callable[[Array, Array], tuple[float, float]]:
    result, batch_result, _ = auc(
        static.data("p", [None, 2]), static.data("y", [None, 1], "int64"), **arguments
    )
    exe = static.Executor()
    exe.run(static.default_startup_program())

    def step(scores: Array, labels: Array) -> tuple[float, float]:
        fetched = exe.run(feed=feed(scores, labels), fetch_list=[result, batch_result])
        assert all(v.shape == (1,) and v.dtype == np.float64 for v in fetched)
        return fetched[0].item(), fetched[1].item()

    return step


def test_auc_is_the_exact_one_of_scores_in_bins() -> None:
    step = build(num_thresholds=100)
    scores, labels = sample(300, 0)
    both = step(scores, labels)
    bins = (scores * np.float32(100)).astype(np.int64)
    assert both == pytest.approx((exact_auc(bins[:, 0], labels[:, 0]),) * 2, abs=1e-12)


def test_auc_is_near_the_exact_one() -> None:
    step = build()
    scores, labels = sample(500, 1)
    assert step(scores, labels)[0] == pytest.approx(exact_auc(scores[:, 0], labels[:, 0]), abs=1 / 4095)


@pytest.mark.parametrize("slide_steps", [1, 2, 3])
def test_one_auc_is_of_all_batches_and_the_other_of_the_last_ones(slide_steps: int) -> None:
    step = build(num_thresholds=1000, slide_steps=slide_steps)
    batches = [sample(40 + i, i) for i in range(5)]
    for i, batch in enumerate(batches):
        actual = step(*batch)
        for value, part in zip(
            actual, (batches[: i + 1], batches[max(0, i + 1 - slide_steps) : i + 1]), strict=True
        ):
            scores, labels = (np.concatenate([b[j] for b in part])[:, 0] for j in (0, 1))
            bins = (scores * np.float32(1000)).astype(np.int64)
            assert value == pytest.approx(exact_auc(bins, labels), abs=1e-12)


def test_zero_slide_steps_are_all_steps() -> None:
    step = build(slide_steps=0)
    for seed in range(3):
        actual = step(*sample(20, seed))
        assert actual[0] == pytest.approx(actual[1])


def test_the_statistics_are_variables_of_the_scope_that_add_up() -> None:
    *_, stats = auc(
        static.data("p", [None, 2]), static.data("y", [None, 1], "int64"), num_thresholds=10, slide_steps=4
    )
    assert [s.name for s in stats] == [f"_generated_var_{i}" for i in range(4)]
    assert [s.shape for s in stats] == [(4, 11), (4, 11), (1, 11), (1, 11)]
    exe = static.Executor()
    exe.run(static.default_startup_program())
    scores, labels = sample(30, 0)
    for _ in range(3):
        exe.run(feed=feed(scores, labels))
    positives = np.bincount((scores * np.float32(10)).astype(int)[labels == 1], minlength=11)
    np.testing.assert_array_equal(global_scope().get(stats[2].name)[0], 3 * positives)
    np.testing.assert_array_equal(global_scope().get(stats[0].name), [positives] * 3 + [positives * 0])


def test_one_class_alone_gives_zero_and_both_ends_have_a_bin() -> None:
    step = build(num_thresholds=10)
    assert step(np.array([[0.3]], dtype="float32"), np.array([[1]])) == (0.0, 0.0)
    assert step(np.array([[1.0], [0.0]], dtype="float32"), np.array([[1], [0]]))[1] == 1.0


def test_one_column_of_scores_is_enough() -> None:
    result, *_ = auc(static.data("p", [None, 1]), static.data("y", [None, 1], "int64"))
    exe = static.Executor()
    exe.run(static.default_startup_program())
    scores, labels = sample(100, 0)
    fetched = exe.run(feed={"p": scores, "y": labels}, fetch_list=[result])[0].item()
    assert fetched == pytest.approx(exact_auc(scores[:, 0], labels[:, 0]), abs=1 / 4095)


def test_scores_that_are_no_probabilities_fail_and_change_nothing() -> None:
    step = build(num_thresholds=10)
    with pytest.raises(ProgramError, match="index_add"):
        step(np.array([[1.2]], dtype="float32"), np.array([[1]]))
    assert not global_scope().get("_generated_var_2").any()


@pytest.mark.parametrize(
    "arguments", [{"curve": "PR"}, {"topk": 2}, {"num_thresholds": 0}, {"slide_steps": -1}]
)
def test_what_would_not_be_computed_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(arguments))):
        build(**arguments)


def test_auc_of_a_network_does_not_stop_its_gradients() -> None:
    probability = static.nn.fc(static.data("x", [None, 3]), 2, activation="softmax")
    label = static.data("y", [None, 1], "int64")
    auc(probability, label)
    assert len(static.append_backward((probability * probability).mean())) == 2


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 16), st.booleans()), min_size=1, max_size=20),
    st.integers(1, 3),
)
def test_any_scores_on_the_grid_give_the_exact_auc(pairs: list[tuple[int, bool]], repeats: int) -> None:
    scores = np.array([[s / 16] for s, _ in pairs], dtype="float32")
    labels = np.array([[int(y)] for _, y in pairs])
    with program_guard(Program(), Program()), names.guard(), scope_guard(Scope()):
        step = build(num_thresholds=16)
        for _ in range(repeats):
            both = step(scores, labels)
    assert both == pytest.approx((exact_auc(scores[:, 0], labels[:, 0]),) * 2, abs=1e-12)
