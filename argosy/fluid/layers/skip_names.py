"""Skip the names of intermediate results that only Paddle has, so that later results have Paddle's names."""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine.ir import names
from argosy.framework.layer import LayerBuilder


def skip_names(layer: LayerBuilder, count: int) -> None:
    """Advance the layer's .tmp_N counter by `count`."""
    for _ in range(count):
        names.generate(f"{layer.name}.tmp")
