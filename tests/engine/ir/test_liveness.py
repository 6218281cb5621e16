"""liveness: from when to when a value takes memory, and what shares memory with it."""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import fx

from argosy.engine.ir.liveness import Allocation, allocations, profile
from argosy.engine.ir.program import default_main_program
from argosy.engine.ir.variable import Variable

FLOATS = 13 * 4 * 4  # bytes of float32[N, 4], whose batch counts as 13


def feed() -> Variable:
    return default_main_program().data("x", [None, 4])


def nodes_and_allocations(*outputs: Variable) -> tuple[list[fx.Node], list[Allocation]]:
    nodes = list(default_main_program().graph.nodes)
    return nodes, allocations(nodes, [one.node for one in outputs])


def test_a_value_lives_from_its_node_to_its_last_reader() -> None:
    x = feed()
    a = torch.sin(x)
    b = torch.cos(a)
    c = a * b
    nodes, (of_a, of_b, of_c) = nodes_and_allocations(c)
    place = {node: i for i, node in enumerate(nodes)}
    assert (of_a.first, of_a.last) == (place[a.node], place[c.node])
    assert (of_b.first, of_b.last) == (place[b.node], place[c.node])
    assert of_c.last == len(nodes)  # it is fetched
    assert [b.nbytes for b in (of_a, of_b, of_c)] == [FLOATS] * 3


def test_the_profile_adds_up_what_is_alive() -> None:
    x = feed()
    y = torch.tanh(torch.cos(torch.sin(x)))
    nodes, life = nodes_and_allocations(y)
    alive = dict(zip([n.name for n in nodes], profile(life, len(nodes)).tolist(), strict=True))
    assert alive == {"x": 0, "sin": FLOATS, "cos": 2 * FLOATS, "tanh": 2 * FLOATS}


def test_views_share_memory_and_make_it_last() -> None:
    x = feed()
    s = torch.sin(x)
    v = s.view(-1)
    y = v.sum() + x.sum()
    nodes, life = nodes_and_allocations(y)
    (block,) = [b for b in life if b.nbytes == FLOATS]
    assert (block.node, block.holder) == (s.node, v.node)
    assert nodes[block.last].name == "sum_1"


def test_what_is_written_over_takes_no_memory_of_its_own() -> None:
    s = torch.sin(feed())
    y = torch.relu_(s)
    _, life = nodes_and_allocations(y)
    assert len(life) == 1


def test_feeds_variables_and_views_of_them_are_not_the_steps_own() -> None:
    x = feed()
    w = default_main_program().state("w", [4, 4], "float32", trainable=True)
    y = x.view(-1, 2, 2).sum() + w.t().sum()
    _, life = nodes_and_allocations(y)
    assert {b.nbytes for b in life} == {4}  # the sums alone


def test_parts_of_a_result_are_counted_each() -> None:
    values, _ = torch.max(feed(), 1)
    _, life = nodes_and_allocations(values)
    assert sorted(b.nbytes for b in life) == [13 * 4, 13 * 8]
