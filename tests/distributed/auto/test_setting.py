"""Setting: read from a strategy, written into one, and the space of settings of a job."""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from argosy.distributed.auto.setting import Setting, settings
from argosy.distributed.fleet import DistributedStrategy

CHANGED = [
    Setting(bucket_mb=4),
    Setting(overlap=True),
    Setting(overlap=True, communicators=2),
    Setting(hierarchical="leaders"),
    Setting(hierarchical="reduce_scatter", overlap=True),
    Setting(divides_updates=False),
    Setting(sharding=True),
    Setting(wire_dtype="bfloat16"),
    Setting(recompute=True),
]


def test_the_defaults_of_a_strategy_are_the_defaults_of_a_setting() -> None:
    assert Setting.of(DistributedStrategy()) == Setting()


@pytest.mark.parametrize("setting", CHANGED, ids=Setting.text)
def test_a_setting_is_read_back_from_the_strategy_that_it_was_written_into(setting: Setting) -> None:
    given = DistributedStrategy()
    assert Setting.of(setting.apply_to(given)) == setting
    assert Setting.of(given) == Setting()


@pytest.mark.parametrize("setting", CHANGED, ids=Setting.text)
def test_the_lines_to_paste_make_a_strategy_of_the_setting(setting: Setting) -> None:
    strategy = DistributedStrategy()
    exec("\n".join(setting.lines(Setting())), {"strategy": strategy})
    assert Setting.of(strategy) == setting


def test_a_switch_that_the_setting_does_not_change_stays_as_assigned() -> None:
    strategy = DistributedStrategy()
    strategy.gradient_merge = True
    strategy.gradient_merge_configs = {"k_steps": 4}
    changed = Setting(bucket_mb=8).apply_to(strategy)
    assert changed.gradient_merge
    assert changed.gradient_merge_configs["k_steps"] == 4


def test_one_rank_has_one_setting() -> None:
    assert settings(Setting(), 1, 1) == [Setting()]


def test_one_host_has_no_hierarchy_and_several_hosts_have() -> None:
    one, two = settings(Setting(), 2, 1), settings(Setting(), 4, 2)
    assert {s.hierarchical for s in one} == {""}
    assert {s.hierarchical for s in two} == {"", "reduce_scatter", "leaders"}
    assert {s.communicators for s in one} == {1}
    for found in (one, two):
        assert found[0] == Setting()
        assert len(set(found)) == len(found)


def test_numerics_and_state_change_only_if_allowed() -> None:
    plain = settings(Setting(), 4, 2)
    assert not any(s.changes_numerics for s in plain)
    assert all(s.has_state_of(Setting()) for s in plain)
    allowed = settings(Setting(), 4, 2, changes_numerics=True, changes_state=True)
    assert any(s.changes_numerics for s in allowed)
    assert any(s.sharding for s in allowed)


def test_a_text_names_what_differs() -> None:
    setting = replace(Setting(), bucket_mb=4, overlap=True, hierarchical="leaders", communicators=2)
    assert setting.text() == "buckets of 4 MB, hierarchical by leaders, overlap, 2 communicators"
