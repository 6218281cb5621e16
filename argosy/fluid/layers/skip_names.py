"""Results that Paddle makes and we do not: their names stay free, so that those behind them keep theirs."""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine.ir import names
from argosy.framework.layer import LayerBuilder


def skip_names(layer: LayerBuilder, count: int) -> None:
    """The next result of the layer is called .tmp_`count` (counted from where it is now)."""
    for _ in range(count):
        names.generate(f"{layer.name}.tmp")
