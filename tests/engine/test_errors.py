"""Who raises what: every error of Argosy is also the built-in type that Paddle's users catch."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import argosy as paddle
from argosy import fluid
from argosy.engine import errors
from argosy.engine.errors import ArgosyError, EnforceNotMet

TABLE: dict[str, tuple[type[Exception], ...]] = {
    "ConfigError": (ValueError,),
    "ArgumentTypeError": (TypeError, ValueError),
    "UnsupportedError": (NotImplementedError, RuntimeError, ValueError),
    "UnknownNameError": (AttributeError,),
    "ProgramError": (EnforceNotMet, RuntimeError),
    "BuildError": (EnforceNotMet, ValueError, RuntimeError),
    "BuildTypeError": (EnforceNotMet, TypeError),
    "BuildIndexError": (EnforceNotMet, IndexError),
    "FeedError": (EnforceNotMet, ValueError),
    "FeedTypeError": (EnforceNotMet, TypeError, ValueError),
    "FetchError": (KeyError, ValueError),
    "FetchTypeError": (TypeError,),
    "ScopeError": (EnforceNotMet, RuntimeError),
    "NanInfError": (EnforceNotMet, FloatingPointError, RuntimeError),
    "DataError": (ValueError,),
    "EOFException": (EOFError,),
    "RejectedError": (RuntimeError,),
}


@pytest.mark.parametrize("name", TABLE)
def test_an_error_is_caught_by_paddles_types(name: str) -> None:
    kind = getattr(errors, name)
    assert issubclass(kind, (ArgosyError, *TABLE[name]))
    assert all(issubclass(kind, base) for base in TABLE[name])
    assert str(kind("the message")) == "the message"


def test_no_error_is_an_assertion() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(kinds) > 20
    assert not any(issubclass(kind, AssertionError) for kind in kinds)


def test_scripts_catch_what_they_catch_with_paddle() -> None:
    layers = fluid.layers
    x, ids = fluid.data("x", [None, 4]), fluid.data("ids", [None, 1], "int64")
    square, narrow, exe = fluid.data("square", [3, 3]), layers.fc(x, 3), fluid.Executor()
    cases: list[tuple[type[Exception], Callable[[], Any]]] = [
        (TypeError, lambda: layers.fc(np.ones((2, 4), "float32"), 3)),
        (TypeError, lambda: layers.fc(ids, 3)),
        (TypeError, lambda: layers.fc(x, "3")),
        (TypeError, lambda: layers.fc(x, 3, param_attr=1.5)),
        (TypeError, lambda: layers.embedding(x, [10, 4])),
        (TypeError, lambda: layers.cast(x, "float33")),
        (TypeError, lambda: layers.reshape(x, [2.5, 2])),
        (TypeError, lambda: layers.concat(x)),
        (TypeError, lambda: fluid.data(3, [None, 4])),
        (TypeError, lambda: fluid.data("y", 4)),
        (TypeError, lambda: exe.run([x])),
        (TypeError, lambda: exe.run(feed=[3])),
        (TypeError, lambda: exe.run(feed={x: 3})),  # type: ignore[dict-item]
        (TypeError, lambda: exe.run(fetch_list=[None])),
        (TypeError, lambda: fluid.optimizer.SGD("0.1")),
        (ValueError, lambda: fluid.optimizer.SGD(-0.1)),
        (ValueError, lambda: layers.dropout(x, 1.5)),
        (ValueError, lambda: layers.pool2d(layers.unsqueeze(x, [1, 1]), 2, pool_type="mid")),
        (ValueError, lambda: layers.matmul(x, square)),
        (EnforceNotMet, lambda: layers.matmul(x, square)),
        (ValueError, lambda: layers.softmax(x, axis=5)),
        (IndexError, lambda: paddle.flatten(x, 7)),
        (ValueError, lambda: exe.run(feed={"x": np.ones((2, 5), "float32")}, fetch_list=[x])),
        (EnforceNotMet, lambda: exe.run(feed={"x": np.ones((2, 4), "float32")}, fetch_list=[narrow])),
        (NotImplementedError, lambda: layers.reshape(x, [ids, 4])),
        (NotImplementedError, lambda: paddle.disable_static(fluid.CPUPlace())),
        (NotImplementedError, lambda: fluid.optimizer.SGD(0.1).clear_grad()),
    ]
    for kind, call in cases:
        with pytest.raises(kind) as caught:
            call()
        assert isinstance(caught.value, ArgosyError), caught.value
