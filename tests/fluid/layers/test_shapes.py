"""Shapes, parts and places."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from argosy.engine.errors import ConfigError, ProgramError
from argosy.engine.runtime.executor import Executor
from argosy.fluid import layers

Agree = Callable[..., None]


def test_reshape_copies_infers_and_activates(agree: Agree) -> None:
    agree(lambda x: layers.reshape(x, [0, -1]), lambda x: x.flatten(1), (None, 3, 2))
    agree(lambda x: layers.reshape(x, [-1, 2], act="tanh"), lambda x: x.view(-1, 2).tanh(), (None, 3, 2))
    assert layers.reshape(layers.data("x", [3, 2]), [0, 6], act="relu").name == "reshape2_0.tmp_1"


def test_squeeze_and_unsqueeze(agree: Agree) -> None:
    agree(lambda x: layers.squeeze(x, [1]), lambda x: x.squeeze(1), (None, 1, 2, 1))
    agree(lambda x: layers.squeeze(x, []), lambda x: x.squeeze(), (3, 1, 2, 1))
    agree(lambda x: layers.unsqueeze(x, [0, 2]), lambda x: x[None, :, None], (None, 2))
    agree(lambda x: layers.unsqueeze(x, 1), lambda x: x[:, None], (None, 2))


def test_transpose_concat_split_stack_slice(agree: Agree) -> None:
    agree(lambda x: layers.transpose(x, [0, 2, 1]), lambda x: x.mT, (None, 3, 2))
    agree(lambda x, y: layers.concat([x, y], axis=1), lambda x, y: torch.cat([x, y], 1), (None, 3), (None, 2))
    agree(lambda x: layers.split(x, 2), lambda x: x.split(3, -1), (None, 6))
    agree(lambda x: layers.split(x, [1, -1], dim=1), lambda x: x.split([1, 3], 1), (None, 4, 2))
    agree(
        lambda x, y: layers.stack([x, y], axis=1), lambda x, y: torch.stack([x, y], 1), (None, 3), (None, 3)
    )
    agree(lambda x: layers.slice(x, [1, 2], [1, -2], [3, 9]), lambda x: x[:, 1:3, -2:], (None, 4, 3))


def test_expand_repeats_and_flatten_makes_a_matrix(agree: Agree) -> None:
    agree(lambda x: layers.expand(x, [1, 3, 2]), lambda x: x.repeat(1, 3, 2), (None, 2, 3))
    agree(layers.flatten, lambda x: x.flatten(1), (None, 2, 3))
    agree(lambda x: layers.flatten(x, axis=2), lambda x: x.reshape(-1, 3), (None, 2, 3))
    agree(lambda x: layers.flatten(x, axis=0), lambda x: x.reshape(1, -1), (None, 2))
    agree(lambda x: layers.flatten(x, axis=2), lambda x: x.reshape(-1, 1), (None, 2))


def test_pad_goes_around_every_dimension(agree: Agree) -> None:
    agree(
        lambda x: layers.pad(x, [0, 1, 2, 3], pad_value=5.0),
        lambda x: F.pad(x, [2, 3, 0, 1], value=5.0),
        (None, 2),
    )


def test_gather_and_scatter(agree: Agree) -> None:
    agree(layers.gather, lambda x, i: x[i], (4, 3), ((None,), 4))
    agree(layers.gather, lambda x, i: x[i[:, 0]], (4, 3), ((None, 1), 4))
    x, i, u = np.ones((3, 2), dtype="float32"), np.array([2, 0, 2]), np.full((3, 2), 5, dtype="float32")
    fed = layers.data("x", [2]), layers.data("i", [None], dtype="int64"), layers.data("u", [2])
    outs = [layers.scatter(*fed), layers.scatter(*fed, overwrite=False)]
    replaced, added = Executor().run(feed={"x": x, "i": i, "u": u}, fetch_list=outs)
    assert replaced[:, 0].tolist() == [5, 1, 5]
    assert added[:, 0].tolist() == [5, 1, 10]


def test_where_gives_the_places_or_chooses(agree: Agree) -> None:
    agree(layers.where, torch.nonzero, ((None, 3), bool))
    agree(layers.where, torch.where, ((None, 3), bool), (None, 3), (None, 3))
    with pytest.raises(ConfigError, match="give both, or none"):
        layers.where(layers.data("x", [3], dtype="bool"), 1.0)


def test_topk_argmax_and_argmin(agree: Agree) -> None:
    agree(lambda x: layers.topk(x, 2), lambda x: tuple(x.topk(2)), (None, 4))
    agree(layers.argmax, lambda x: x.argmax(0), (None, 4))
    agree(lambda x: layers.argmax(x, 1), lambda x: x.argmax(1), (None, 4))
    agree(lambda x: layers.argmin(x, -1), lambda x: x.argmin(1), (None, 4))


@pytest.mark.parametrize("shape", [(None, 1), (None,), (None, 2, 1)])
def test_one_hot_drops_a_last_dimension_of_one(agree: Agree, shape: Any) -> None:
    def expect(ids: torch.Tensor) -> torch.Tensor:
        return F.one_hot(ids.squeeze(-1) if len(shape) > 1 else ids, 5).float()

    agree(lambda ids: layers.one_hot(ids, 5), expect, (shape, 5))


def test_one_hot_takes_a_batch_of_one() -> None:
    out = layers.one_hot(layers.data("ids", [None], dtype="int64"), 3)
    assert Executor().run(feed={"ids": np.array([2])}, fetch_list=[out])[0].tolist() == [[0, 0, 1]]


def test_ids_out_of_range_fail_or_give_zeros() -> None:
    ids = layers.data("ids", [1], dtype="int64")
    strict, lax = layers.one_hot(ids, 3), layers.one_hot(ids, 3, allow_out_of_range=True)
    feed = {"ids": np.array([[1], [3]])}
    assert Executor().run(feed=feed, fetch_list=[lax])[0].tolist() == [[0, 1, 0], [0, 0, 0]]
    with pytest.raises(ProgramError, match="out of bounds"):
        Executor().run(feed=feed, fetch_list=[strict])


def test_shape_is_that_of_the_run() -> None:
    out = layers.shape(layers.data("x", [3]))
    for batch in (2, 5):
        fetched = Executor().run(feed={"x": np.zeros((batch, 3), dtype="float32")}, fetch_list=[out])[0]
        assert fetched.tolist() == [batch, 3]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: layers.reshape(x, [6], actual_shape=[-1, -1]), "more than once"),
        (lambda x: layers.expand(x, [2]), "1 times for 2 dimensions"),
        (lambda x: layers.flatten(x, axis=3), "axis=3 of a variable with 2 dimensions; use 0 to 2"),
        (lambda x: layers.pad(x, [1, 1]), "2 paddings for 2 dimensions; give two for each"),
    ],
)
def test_what_does_not_fit_is_refused(build: Callable[..., Any], message: str) -> None:
    x = layers.data("x", [3])
    with pytest.raises(ConfigError, match=message):
        build(x)
