"""Every pair of strategies trains on two ranks as plain torch does, or raises; the documentation says which."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from tests.distributed.fleet import strategy_pairs
from tests.ranks import ForkServer

pytestmark = pytest.mark.slow


def test_every_pair_trains_as_plain_torch_or_raises_with_both_names(
    ranks: ForkServer, tmp_path: Path
) -> None:
    outcomes = strategy_pairs.outcomes(ranks, tmp_path)
    assert not {pair: text for pair, text in outcomes.items() if text.startswith("differs")}
    for pair, text in outcomes.items():
        for name in pair.split() if text.startswith("raises") else ():
            assert name.replace("reduce_mode", "reduce_strategy") in text, text
    page = strategy_pairs.PAGE.read_text()
    command = "python -m tests.distributed.fleet.strategy_pairs"
    assert page == strategy_pairs.with_table(page, outcomes), (
        f"{strategy_pairs.PAGE.name} is not current: {command}"
    )
