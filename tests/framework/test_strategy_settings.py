"""settings: what a table of fields accepts, refuses, keeps back and says."""

# SPDX-License-Identifier: Apache-2.0
import copy
import enum
import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.engine.errors import ConfigError, UnknownNameError
from argosy.framework.strategy_settings import Field, Settings, _warn_once, configs, table, with_defaults


class Colour(enum.IntEnum):
    red = 0
    blue = 1


class Small(Settings):
    title = message = "Small"
    fields = table(
        Field("ready", "bool", False, "works", "is there"),
        Field("later", "bool", False, "not yet", "comes later"),
        Field("on", "bool", True, "pending", "would be on"),
        Field("size", "int", 3, "works", "a size", least=1),
        Field("rate", "float", 0.5, "works", "a rate", above=0),
        Field("names", "list of str", (), "works", "names"),
        Field("colour", Colour, Colour.red, "works", "a colour", not_yet=(Colour.blue,)),
        Field("maybe", "bool or None", None, "always", "three values"),
        configs(
            "fuse",
            "FuseConfig",
            Field("bytes", "int", 8, least=0),
            Field("mode", "str", "a", among=("a", "b")),
        ),
    )


class Large(Settings):
    title = message = "Large"
    fields = table(Field("width", "int", 1), Field("small", Small, with_defaults(Small, size=4)))


@pytest.fixture(autouse=True)
def told_nothing() -> None:
    _warn_once.cache_clear()


def test_reads_the_default_until_something_is_assigned() -> None:
    settings = Small()
    assert (settings.size, settings.names, settings.maybe, settings.colour) == (3, [], None, Colour.red)
    settings.size = 7
    assert settings.size == 7
    assert Small().size == 3


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("ready", 1, "Small.ready is 1; use True or False"),
        ("ready", "yes", "use True or False"),
        ("size", True, "Small.size is True; use an integer of at least 1"),
        ("size", 0, "of at least 1"),
        ("size", 2.0, "use an integer"),
        ("size", 2**40, "at most 32 bits"),
        ("rate", False, "number above 0"),
        ("rate", 0, "number above 0"),
        ("rate", float("nan"), "finite number"),
        ("names", "abc", "use a list"),
        ("names", ["a", 1], r"Small.names\[1\] is 1; use a string"),
        ("colour", 1, "use one of Colour.red, Colour.blue"),
        ("maybe", 0, "use True, False or None"),
        ("fuse_configs", 3, "use a dict"),
        ("fuse_configs", {"bytes": -1}, r"fuse_configs\['bytes'\] is -1"),
        ("fuse_configs", {"mode": "c"}, "use one of 'a', 'b'"),
    ],
)
def test_refuses_a_wrong_value_and_keeps_the_old_one(name: str, value: object, words: str) -> None:
    settings = Small()
    with pytest.raises(ConfigError, match=words):
        setattr(settings, name, value)
    assert settings == Small()


def test_an_int_is_fine_where_a_float_is_wanted_and_numpy_numbers_are_numbers() -> None:
    settings = Small()
    settings.rate, settings.size, settings.ready = 2, np.int64(5), np.bool_(True)
    assert (settings.rate, settings.size, settings.ready) == (2.0, 5, True)
    assert type(settings.rate) is float
    assert type(settings.size) is int


def test_suggests_the_nearest_name() -> None:
    with pytest.raises(UnknownNameError, match="Small has no 'raedy'.*did you mean 'ready'"):
        Small().raedy = True
    with pytest.raises(UnknownNameError, match="did you mean 'size'"):
        _ = Small().sise
    with pytest.raises(UnknownNameError, match="fuse_configs has no 'byte'.*'bytes'"):
        Small().fuse_configs = {"byte": 1}
    assert not hasattr(Small(), "sise")


def test_says_where_a_name_is_if_it_is_one_level_below() -> None:
    with pytest.raises(UnknownNameError, match="it is in small: use .small.rate"):
        Large().rate = 1.0


def test_what_is_not_there_yet_raises_when_turned_on_and_only_then() -> None:
    settings = Small()
    settings.later = False
    with pytest.raises(ConfigError, match=r"Small.later is True, which is not supported \(comes later\)"):
        settings.later = True
    with pytest.raises(ConfigError, match="colour is blue, which is not supported"):
        settings.colour = Colour.blue
    settings.colour = Colour.red


def test_what_paddle_has_on_by_default_is_accepted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "argosy"):
        settings = Small()
        assert settings.on
        settings.on = False
        assert not caplog.records
        settings.on = True
        Small().on = True
    assert [r.getMessage() for r in caplog.records] == [
        "Small.on=True is accepted, but has no effect yet: would be on"
    ]


def test_configs_take_the_given_keys_keep_the_others_and_replace_lists() -> None:
    settings = Small()
    settings.fuse_configs = {"bytes": 2}
    settings.fuse_configs = {"mode": "b"}
    assert settings.fuse_configs == {"bytes": 2, "mode": "b"}
    settings.names = ["a"]
    settings.names = ("b",)
    assert settings.names == ["b"]


def test_a_dict_with_one_wrong_value_assigns_none_of_it() -> None:
    settings = Small()
    with pytest.raises(ConfigError):
        settings.fuse_configs = {"bytes": 2, "mode": "c"}
    assert settings.fuse_configs["bytes"] == 8


def test_what_is_read_is_a_copy() -> None:
    settings = Small()
    settings.names.append("a")
    settings.fuse_configs["bytes"] = 9
    assert settings == Small()


def test_settings_below_are_live_and_have_the_defaults_of_their_place() -> None:
    settings = Large()
    assert settings.small.size == 4
    settings.small.ready = True
    assert settings.small.ready
    mine = Small()
    settings.small = mine
    mine.size = 9
    assert settings.small.size == 9
    with pytest.raises(ConfigError, match="Large.small is 3; use an object of Small"):
        settings.small = 3


def test_a_copy_is_equal_and_independent() -> None:
    settings = Large()
    settings.small.names = ["a"]
    for other in (copy.deepcopy(settings), copy.copy(settings)):
        assert other == settings
        other.small.names = ["b"]
        assert other != settings
    assert settings.small.names == ["a"]
    assert settings != Small()


def test_repr_shows_what_differs_from_the_default() -> None:
    settings = Large()
    assert repr(settings) == "Large()"
    settings.width = 1
    settings.small.size, settings.small.fuse_configs = 5, {"bytes": 1}
    assert repr(settings) == "Large(small=Small(size=5, fuse_configs=fuse_configs(bytes=1)))"


def test_frozen_settings_refuse_every_assignment_but_a_copy_does_not() -> None:
    settings = Large()
    settings.freeze()
    with pytest.raises(ConfigError, match="set after a program was built.*set it before minimize"):
        settings.width = 2
    with pytest.raises(ConfigError, match="Small.size is set after"):
        settings.small.size = 5
    with pytest.raises(ConfigError, match="fuse_configs"):
        settings.small.fuse_configs = {"bytes": 1}
    free = copy.deepcopy(settings)
    free.small.size = 5
    assert free.small.size == 5


def test_every_field_is_listed_for_completion() -> None:
    assert set(Small.fields) <= set(dir(Small()))


@settings(max_examples=30)
@given(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.text()), st.binary()
    )
)
def test_any_value_is_either_kept_as_it_is_or_refused(value: object) -> None:
    for name in Small.fields:
        settings = Small()
        try:
            setattr(settings, name, value)
        except ConfigError:
            assert settings == Small()
        else:
            assert getattr(settings, name) == value
