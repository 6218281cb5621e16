"""Fetch lists: nested ones, what minimize returned, and entries that cannot be fetched."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest

from argosy import fluid
from argosy.engine.errors import FetchError
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.fetching import fetched_variables, fetches_updates
from argosy.engine.runtime.scope import global_scope


def test_lists_tuples_and_pairs_are_flattened_and_updates_fetch_nothing() -> None:
    x = fluid.data("x", [None, 4])
    out = fluid.layers.fc(x, 1)
    loss = fluid.layers.mean(out)
    returned = fluid.optimizer.SGD(0.1).minimize(loss)
    (weight, gradient), (bias, _) = returned[1]
    program = default_main_program()

    def names(fetch: Any) -> list[str]:
        return [variable.name for variable in fetched_variables(program, fetch)]

    assert names([loss, returned]) == [loss.name]
    assert names([loss, returned[0]]) == [loss.name]
    assert names([[loss, (out,)], (weight, gradient)]) == [loss.name, out.name, weight.name, gradient.name]
    assert names(returned[1])[:2] == [weight.name, gradient.name]
    assert names(bias.name) == [bias.name]
    assert names(None) == names([]) == []
    for wrong in ([None], [loss, [None]], [3], [loss, (weight, None)]):
        with pytest.raises(
            TypeError, match="fetch_list holds (None|3); give Variables or their names"
        ) as caught:
            names(wrong)
        assert isinstance(caught.value, FetchError)
    assert [fetches_updates(f) for f in ([loss], [loss, returned], returned[0], None)] == [
        False,
        True,
        True,
        False,
    ]

    exe, feed = Executor(), {"x": np.ones((2, 4), "float32")}
    exe.run(default_startup_program())
    before = global_scope().get(weight.name).clone()
    exe.run(feed=feed, fetch_list=[loss], use_prune=True)
    assert (global_scope().get(weight.name) == before).all()
    assert len(exe.run(feed=feed, fetch_list=[loss, returned], use_prune=True)) == 1
    assert (global_scope().get(weight.name) != before).all()
