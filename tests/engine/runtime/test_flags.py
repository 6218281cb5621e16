"""Flags: those with an effect, Paddle's others, and misspelt ones."""

# SPDX-License-Identifier: Apache-2.0
import logging

import pytest

from argosy.engine.errors import ConfigError
from argosy.engine.runtime import flags
from argosy.engine.runtime.paddle_flags import WITHOUT_EFFECT


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flags, "_set", {})
    monkeypatch.setattr(flags, "_ignored", {})


def test_a_flag_without_effect_is_logged_once_and_can_be_read(caplog: pytest.LogCaptureFixture) -> None:
    name = "FLAGS_eager_delete_tensor_gb"
    with pytest.raises(ConfigError, match="no effect in Argosy and no value"):
        flags.get_flags(name)
    with caplog.at_level(logging.INFO, "argosy"):
        flags.set_flags({name: 0.0, "FLAGS_check_nan_inf": 1})
        flags.set_flags({name: 1.0})
    assert [r.getMessage() for r in caplog.records] == [f"{name} = 0.0 has no effect in Argosy"]
    assert flags.get_flags([name, "FLAGS_check_nan_inf"]) == {name: 1.0, "FLAGS_check_nan_inf": True}


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("FLAGS_chek_nan_inf", "FLAGS_check_nan_inf"),
        ("FLAGS_cudnn_determinstic", "FLAGS_cudnn_deterministic"),
    ],
)
def test_a_misspelt_flag_raises_with_a_suggestion(misspelt: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown flag '{misspelt}' .did you mean '{meant}'"):
        flags.set_flags({misspelt: 1})


def test_wrong_values_and_types_raise_and_set_nothing() -> None:
    with pytest.raises(ConfigError, match="not a boolean"):
        flags.set_flags({"FLAGS_check_nan_inf": 3, "FLAGS_benchmark": True})
    with pytest.raises(TypeError, match="set_flags was given a list"):
        flags.set_flags(["FLAGS_check_nan_inf"])  # type: ignore[arg-type]
    assert not flags.flag("FLAGS_check_nan_inf")
    assert flags._ignored == {}


def test_flags_with_an_effect_are_not_in_the_list_of_those_without() -> None:
    assert not WITHOUT_EFFECT & flags._defaults.keys()
    assert len(WITHOUT_EFFECT) > 60
