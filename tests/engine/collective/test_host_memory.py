"""host_memory: a tensor in shared pages becomes private in its place."""

# SPDX-License-Identifier: Apache-2.0
import mmap
import os

import pytest
import torch

from argosy.engine.collective.host_memory import HostMemory, make_private, padded_to_pages


@pytest.fixture
def mapped() -> tuple[mmap.mmap, torch.Tensor, torch.Tensor]:
    """A segment, and two tensors in it as two ranks would map them: the same memory at two addresses."""
    descriptor = os.memfd_create("test", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, 3 * mmap.PAGESIZE)
    first, second = (mmap.mmap(descriptor, 3 * mmap.PAGESIZE) for _ in range(2))
    os.close(descriptor)
    views = [
        torch.frombuffer(m, dtype=torch.float32, count=1500, offset=mmap.PAGESIZE) for m in (first, second)
    ]
    views[0].copy_(torch.arange(1500.0))
    return first, *views


def test_values_and_address_stay_and_writes_are_not_shared_any_more(
    mapped: tuple[mmap.mmap, torch.Tensor, torch.Tensor],
) -> None:
    segment, tensor, other = mapped
    assert torch.equal(tensor, other)
    address, view = tensor.data_ptr(), tensor[7:9]
    make_private(tensor)
    assert tensor.data_ptr() == address
    assert torch.equal(tensor, torch.arange(1500.0))
    other.fill_(5.0)
    assert view.tolist() == [7.0, 8.0]
    view.zero_()
    assert other[7:9].tolist() == [5.0, 5.0]
    segment[0:4] = b"page"  # pages before the tensor are as they were


def test_a_memory_leaves_only_what_was_added(mapped: tuple[mmap.mmap, torch.Tensor, torch.Tensor]) -> None:
    _, tensor, other = mapped
    memory = HostMemory()
    memory.leave([torch.ones(3), tensor])
    other[0] = 3.0
    assert tensor[0] == 3.0
    memory.add([tensor])
    memory.leave()
    other[0] = 4.0
    assert tensor[0] == 3.0
    memory.leave()


@pytest.mark.parametrize(("numel", "pages"), [(0, 1), (1, 1), (1024, 1), (1025, 2)])
def test_sizes_are_rounded_up_to_pages(numel: int, pages: int) -> None:
    assert padded_to_pages(torch.empty(numel)) == pages * mmap.PAGESIZE
