"""RandomStates: what was drawn after a capture is drawn again after its restore, also through JSON."""

# SPDX-License-Identifier: Apache-2.0
import json
import random

import numpy as np
import pytest
import torch

from argosy.engine.data.random_states import RandomStates


def draw() -> list[float]:
    drawn = [random.random(), random.gauss(0, 1), float(np.random.rand()), float(np.random.standard_normal())]
    return [*drawn, float(torch.rand(())), float(torch.randn(()))]


@pytest.mark.parametrize("before", [0, 1])  # after an odd number of normal draws a second one is in store
def test_restores_all_three_through_json(before: int) -> None:
    for _ in range(before):
        draw()
    states = RandomStates.capture()
    wanted = draw(), draw()
    text = json.dumps(states.to_json())
    for again in (states, RandomStates.from_json(states.to_json()), RandomStates.from_json(json.loads(text))):
        draw()
        again.restore()
        assert (draw(), draw()) == wanted


def test_restores_another_bit_generator_of_numpy() -> None:
    before = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(3))
    try:
        states = json.loads(json.dumps(RandomStates.capture().to_json()))
        wanted = np.random.rand(5).tolist()
        RandomStates.from_json(states).restore()
        assert np.random.rand(5).tolist() == wanted
    finally:
        np.random.set_bit_generator(before)


def test_what_is_drawn_later_does_not_change_what_was_captured() -> None:
    states = RandomStates.capture()
    before = states.to_json()
    draw()
    assert states.to_json() == before
