"""Before the first step, all ranks compare what they are going to exchange.

rank 0   all_reduce dp fc_0.w_0@GRAD float32[784, 10]     rank 1   all_reduce dp fc_0.w_0@GRAD float32[784, 10]
         all_reduce dp fc_0.b_0@GRAD float32[10]                   all_reduce dp fc_1.w_0@GRAD float32[10, 10]
                                                                   ▲ the first difference is named
"""

# SPDX-License-Identifier: Apache-2.0
import hashlib
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest

from argosy.engine.collective.world import World
from argosy.engine.errors import ScheduleError

_END = "nothing more"


def compare_schedules(world: World, schedule: Sequence[str]) -> None:
    """Raise on every rank if one of them has another schedule; each line stands for a collective."""
    if world.store is None:
        return
    world.schedules += 1
    text = "\n".join(schedule)
    mine = hashlib.sha256(text.encode()).hexdigest()
    sums = world.meet(f"schedule#{world.schedules} (comparing programs before the first step)", mine)
    if len(set(sums)) > 1:
        texts = world.meet(f"schedule-text#{world.schedules} (looking for the difference)", text)
        raise ScheduleError(_difference([one.splitlines() for one in texts]))


def _difference(texts: Sequence[Sequence[str]]) -> str:
    """What the ranks that are in the minority do differently from the others, at the first line that differs."""
    usual = Counter(tuple(text) for text in texts).most_common(1)[0][0]
    odd = [rank for rank, text in enumerate(texts) if tuple(text) != usual]
    other = next(rank for rank, text in enumerate(texts) if tuple(text) == usual)
    lines = enumerate(zip_longest(texts[odd[0]], usual, fillvalue=_END))
    number, (found, wanted) = next((n, pair) for n, pair in lines if pair[0] != pair[1])
    more = f" (and {len(odd) - 1} more ranks)" if len(odd) > 1 else ""
    return (
        f"the ranks have different programs: collective {number + 1} of rank {odd[0]}{more} is {found!r}, and that of "
        f"rank {other} is {wanted!r}; build the same model with the same arguments and strategy on every rank"
    )
