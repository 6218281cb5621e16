"""ModuleTensors: which tensor of a module is which variable."""

# SPDX-License-Identifier: Apache-2.0
import torch

from argosy.engine.ir.module_tensors import ModuleTensor
from argosy.engine.ir.program import default_main_program, default_startup_program


def test_tensors_and_variables_find_each_other() -> None:
    program, net = default_main_program(), torch.nn.Linear(4, 2)
    net(program.data("x", [None, 4]))
    name = program.module_tensors.name_of(net.weight)
    assert name is not None
    assert program.var(name).shape == (2, 4)
    assert program.module_tensors.tensor_of(name) is net.weight
    assert net.weight in program.module_tensors
    assert torch.ones(1) not in program.module_tensors
    assert program.module_tensors.tensor_of("x") is None


def test_the_startup_program_has_the_tensors_that_it_reads() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 2, bias=False))
    net(default_main_program().data("x", [None, 4]))
    assert default_startup_program().module_tensors.sources == (ModuleTensor(net, "0.weight", net[0].weight),)


def test_a_copy_of_a_program_has_tensors_of_its_own() -> None:
    program, net = default_main_program(), torch.nn.Linear(4, 2)
    copied = program.clone()
    net(program.data("x", [None, 4]))
    assert net.weight not in copied.module_tensors
