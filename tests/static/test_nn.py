"""static.nn: 2.0's arguments, the layers of fluid."""

# SPDX-License-Identifier: Apache-2.0
import inspect
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from argosy import static
from argosy.engine.errors import ConfigError, UnknownNameError
from argosy.engine.runtime.scope import global_scope
from argosy.framework.layer import ParamAttr
from argosy.static import nn


def run(*fetches: Any, **feed: Any) -> list[Any]:
    exe = static.Executor()
    exe.run(static.default_startup_program())
    return exe.run(feed=feed, fetch_list=list(fetches))


def test_fc_has_the_arguments_of_2_0() -> None:
    names = list(inspect.signature(nn.fc).parameters)
    assert names == ["x", "size", "num_flatten_dims", "weight_attr", "bias_attr", "activation", "name"]
    x = static.data("x", [None, 3, 2])
    out = nn.fc(x=x, size=4, weight_attr=ParamAttr(name="w"), bias_attr="b", activation="relu", name="head")
    fed = np.random.default_rng(0).standard_normal((5, 3, 2)).astype("float32")
    fetched = run(out, x=fed)[0]
    expected = torch.relu(
        torch.from_numpy(fed).flatten(1) @ global_scope().get("w") + global_scope().get("b")
    )
    np.testing.assert_allclose(fetched, expected, rtol=1e-5, atol=1e-6)
    assert out.name == "head.tmp_2"


@pytest.mark.parametrize("shape", [[None], [None, 1], [None, 4, 2]])
def test_embedding_takes_ids_of_any_shape(shape: list[int | None]) -> None:
    ids = static.data("ids", shape, "int64")
    out = nn.embedding(ids, [7, 3], padding_idx=0)
    assert out.shape == (*ids.shape, 3)
    for batch in (2, 5):
        fed = np.random.default_rng(batch).integers(0, 7, [batch, *shape[1:]])
        fetched = run(out, ids=fed)[0]
        expected = F.embedding(torch.from_numpy(fed), global_scope().get("embedding_0.w_0"))
        np.testing.assert_array_equal(fetched, expected * (torch.from_numpy(fed) != 0).unsqueeze(-1))


def test_a_network_of_static_nn_trains_and_tests() -> None:
    x = static.data("x", [None, 3, 8, 8])
    hidden = nn.conv2d(x, 4, 3, padding=1, bias_attr=False)
    hidden = nn.batch_norm(hidden, act="relu")
    hidden = nn.group_norm(nn.instance_norm(hidden), 2)
    hidden = nn.prelu(nn.conv2d_transpose(hidden, 2, filter_size=2, stride=2), "channel")
    out = nn.layer_norm(nn.fc(hidden, 3))
    loss = torch.mean(out * out)
    pairs = static.append_backward(loss)
    assert len(pairs) == len(static.default_main_program().all_parameters())
    testing = static.default_main_program().clone(for_test=True)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    for batch in (2, 4):
        feed = {"x": np.random.default_rng(batch).standard_normal((batch, 3, 8, 8)).astype("float32")}
        grads = exe.run(feed=feed, fetch_list=[g for _, g in pairs])
        assert all(np.isfinite(g).all() for g in grads)
        assert exe.run(testing, feed, [out.name])[0].shape == (batch, 3)


def test_conv3d_and_create_parameter_are_there() -> None:
    out = nn.conv3d(static.data("x", [None, 1, 4, 4, 4]), 2, 3)
    assert (out.name, out.shape) == ("conv3d_0.tmp_1", (-1, 2, 2, 2, 2))
    assert nn.create_parameter([2, 3], "float32", name="mine").shape == (2, 3)


def test_sparse_embedding_is_a_table_for_servers_and_without_them_an_embedding() -> None:
    ids = static.data("ids", [None], "int64")
    out = nn.sparse_embedding(ids, size=[6, 2], param_attr=ParamAttr(name="table"), padding_idx=1)
    table = static.default_main_program().var("table")
    assert (table.is_sparse, table.is_distributed) == (True, True)
    (rows,) = run(out, ids=np.array([5, 1]))
    assert rows.tolist() == [global_scope().get("table")[5].tolist(), [0.0, 0.0]]
    with pytest.raises(ConfigError, match="entry=.* is not supported; leave it out"):
        nn.sparse_embedding(ids, size=[6, 2], entry="CountFilterEntry(10)")


def test_an_unknown_layer_is_named_with_its_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"argosy\.static\.nn\.conv2 is not in Argosy"):
        _ = nn.conv2
