"""The garbage collector is paused while a program is built, and is afterwards as it was."""

# SPDX-License-Identifier: Apache-2.0
import gc

import pytest
import torch

from argosy.engine.ir.backward import gradients
from argosy.engine.ir.gc_pause import paused_gc
from argosy.engine.ir.program import default_main_program


def fails() -> None:
    with paused_gc():
        with paused_gc():
            assert not gc.isenabled()
        assert not gc.isenabled(), "the outer pause continues"
        raise ValueError("inside")


def test_no_collection_starts_inside_and_the_collector_is_on_again_after_an_error() -> None:
    with pytest.raises(ValueError, match="inside"):
        fails()
    assert gc.isenabled()


def test_a_collector_that_the_user_has_switched_off_stays_off() -> None:
    gc.disable()
    try:
        with paused_gc():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_backward_is_recorded_without_collections() -> None:
    seen: list[bool] = []
    x = default_main_program().data("x", [3])
    x.stop_gradient = False
    y = torch.tanh(x)
    y.value.register_hook(lambda gradient: seen.append(gc.isenabled()))
    gradients([y.sum()], [x])
    assert seen == [False]
    assert gc.isenabled()
