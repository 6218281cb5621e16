"""fluid.DataFeeder: converts a list of samples to a feed."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

import torch

from argosy.engine.data.feed import FeedSpec
from argosy.engine.data.lod_tensor import LoDTensor
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program, default_main_program
from argosy.engine.ir.variable import Variable


class DataFeeder:
    """`feeder.feed([(image, label), …])` returns {name: tensor} for the variables of `feed_list`.

    A sample of a variable with lod_level=1 is a list of any length; the batch is a LoDTensor.
    """

    def __init__(
        self, feed_list: Sequence[Variable | str], place: Any = None, program: Program | None = None
    ) -> None:
        program = program or default_main_program()
        self.specs = [FeedSpec.of(v if isinstance(v, Variable) else program.var(v)) for v in feed_list]

    def feed(self, iterable: Sequence[Sequence[Any]]) -> dict[str, torch.Tensor | LoDTensor]:
        """Batch the samples, each of which has a value for every variable."""
        samples = list(iterable)
        for number, sample in enumerate(samples):
            if len(sample) != len(self.specs):
                names = ", ".join(s.name for s in self.specs)
                raise ConfigError(
                    f"sample {number} has {len(sample)} values; the feed_list has {len(self.specs)}: {names}"
                )
        return {spec.name: spec.from_samples([s[i] for s in samples]) for i, spec in enumerate(self.specs)}
