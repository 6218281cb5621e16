"""Branches and loops in files: the same results, and nothing that the program could not have recorded."""

# SPDX-License-Identifier: Apache-2.0
import json
from typing import Any

import numpy as np
import pytest
import torch

from argosy import static
from argosy.engine.errors import ProgramError
from argosy.engine.ir.serialize import from_dict, to_dict
from argosy.static.nn import cond
from tests.engine.ir.test_blocks import net


def test_a_saved_program_computes_the_same() -> None:
    out = net()
    loss = (out * out).mean()
    test = static.default_main_program().clone(for_test=True)
    static.append_backward(loss)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    images = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype("float32")
    for program in (test, static.default_main_program()):
        loaded = from_dict(json.loads(json.dumps(to_dict(program))))
        for count in (2, 9):
            feed = {"x": images, "n": np.array([count])}
            wanted = [out.name] if program is test else [out.name, "w@GRAD"]
            ours, theirs = (exe.run(p, feed=feed, fetch_list=wanted) for p in (program, loaded))
            for a, b in zip(ours, theirs, strict=True):
                np.testing.assert_array_equal(a, b)


def _block_of(data: dict[str, Any]) -> Any:
    (node,) = [node for node in data["nodes"] if node["target"] == "blocks"]
    return node["blocks"]


def test_malformed_blocks_are_rejected() -> None:
    x = static.data("x", [None, 4])
    cond(x.sum() > 0, lambda: torch.relu(x), lambda: x * 2)
    saved = json.dumps(to_dict(static.default_main_program()))

    def loaded(change: Any) -> None:
        data = json.loads(saved)
        change(_block_of(data))
        from_dict(data)

    def unknown(block: Any) -> None:
        block["blocks"][0]["nodes"][1]["target"] = "aten.from_file.default"

    def mutating(block: Any) -> None:
        block["blocks"][0]["nodes"][1]["target"] = "aten.relu_.default"

    def aliasing(block: Any) -> None:
        block["blocks"][0]["outputs"] = [block["blocks"][0]["nodes"][0]["name"]]

    def other_kind(block: Any) -> None:
        block["kind"] = "__import__"

    def other_shape(block: Any) -> None:
        block["blocks"][0]["nodes"][1].update(target="aten.sum.default")

    def one_input_less(block: Any) -> None:
        del block["blocks"][1]["nodes"][0]

    loaded(lambda block: None)
    changes = (unknown, mutating, aliasing, other_kind, other_shape, one_input_less)
    for change in changes:
        with pytest.raises(ProgramError):
            loaded(change)
