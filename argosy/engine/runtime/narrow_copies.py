"""16-bit copies of a scope's weights, which steps in mixed precision read instead of casting the weights.

    step n        reads w@bfloat16; its update writes w and w@bfloat16 (passes/narrow_copies.py)
    step n + 1    reads w@bfloat16

A copy is used again only if nothing else can have written the weight since the step that wrote both. Otherwise it is
cast before the step. What may write a weight, and how it is noticed:

    Scope.put, erase                              another tensor
    Scope.write, pulls, torch ops in place        torch increments the tensor's version
    a step: its C++ kernels and torch's fused     `running` increments the versions of all variables that the step
    updates do not increment versions             mutates, even if the step fails
    numpy arrays and `.data` of a tensor that     never noticed: the scope lists the variable in `exposed`, and it is
    the scope has handed out                      cast before every step
    other ranks, in shared memory of              likewise, for a variable of `Scope.shared`
    strategy.sharding
    other ranks, in divided updates               a step of this rank, too: all ranks run it together, and write the
                                                  copy in shared memory (host_variables.py)
    a step of another thread                      the copies are invalid after steps that overlap

Copies are not variables: they are not saved, listed or fetched.
"""

# SPDX-License-Identifier: Apache-2.0
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class CopySpec:
    """A copy that a step reads and writes."""

    name: str
    """The variable's."""
    dtype: torch.dtype
    memory_format: torch.memory_format


@dataclass
class _Copy:
    value: Tensor
    source: weakref.ref[Tensor] | None = None
    """The tensor whose rounded value it is, if its version is still `version`."""
    version: int = 0
    shared_with: weakref.ref[Tensor] | None = None
    """Of a copy in memory that the ranks of a host share: the weight there. It has the value of no other tensor."""

    def belongs_to(self, source: Tensor) -> bool:
        return self.shared_with is None or self.shared_with() is source

    def is_valid(self, source: Tensor) -> bool:
        is_same = self.source is not None and self.source() is source
        return is_same and not source.is_inference() and source._version == self.version


class NarrowCopies:
    """The copies of one scope."""

    def __init__(self) -> None:
        self._copies: dict[str, _Copy] = {}
        self._lock = threading.Lock()
        self._num_running = 0
        self._num_overlaps = 0
        """How often a step began while another one was running."""

    def forget(self, name: str) -> None:
        """Free the copy of a variable, if it has one."""
        self._copies.pop(name, None)

    def value_of(self, name: str) -> Tensor:
        """The copy of a variable, which a step reads and writes."""
        return self._copies[name].value

    def share(self, name: str, value: Tensor, source: Tensor) -> None:
        """Replace a copy by one in memory that the ranks of a host share, with the rounded value of `source`."""
        reference = weakref.ref(source)
        self._copies[name] = _Copy(value, reference, _version(source), reference)

    @contextmanager
    def running(
        self,
        specs: Sequence[CopySpec],
        sources: Mapping[str, Tensor],
        mutated: Sequence[Tensor],
        untracked: frozenset[str],
        are_complete: Callable[[], bool] = lambda: True,
    ) -> Iterator[list[Tensor]]:
        """Around a step: the rounded values of `sources`, which the step writes together with them.

        `mutated`: all variables that the step writes. `untracked`: those that may have been written unnoticed.
        `are_complete`: called after the step; False: the step has written parts of the copies only.
        """
        with self._lock:
            self._num_running += 1
            self._num_overlaps += self._num_running > 1
            was_alone, num_overlaps = self._num_running == 1, self._num_overlaps
            copies = {s.name: self._begin(s, sources[s.name], s.name in untracked) for s in specs}
        has_completed = False
        try:
            yield [copy.value for copy in copies.values()]
            has_completed = True
        finally:
            with self._lock:
                if self._copies:
                    torch.autograd.graph.increment_version([t for t in mutated if not t.is_inference()])
                self._num_running -= 1
                was_alone = was_alone and num_overlaps == self._num_overlaps
                if has_completed and was_alone and are_complete():
                    for name, copy in copies.items():
                        copy.source, copy.version = weakref.ref(sources[name]), _version(sources[name])

    def _begin(self, spec: CopySpec, source: Tensor, is_untracked: bool) -> _Copy:
        """The copy with the rounded value of `source`; it is invalid until a step has written both."""
        copy = self._copies.get(spec.name)
        if copy is None or not copy.belongs_to(source) or not _fits(copy.value, spec, source):
            like = torch.empty_like(source, dtype=spec.dtype, memory_format=spec.memory_format)
            copy = self._copies[spec.name] = _Copy(like)
        if is_untracked or not copy.is_valid(source):
            copy.value.copy_(source)
        copy.source = None
        return copy


def _fits(value: Tensor, spec: CopySpec, source: Tensor) -> bool:
    return (
        (value.dtype, value.device, value.shape) == (spec.dtype, source.device, source.shape)
        and (
            spec.memory_format is torch.preserve_format
            or value.is_contiguous(memory_format=spec.memory_format)
        )
    )  # fmt: skip


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version
