"""settings: what a table of fields accepts, refuses, keeps back and says."""

# SPDX-License-Identifier: Apache-2.0
import copy
import enum
import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.engine.errors import ConfigError, UnknownNameError
from argosy.framework.settings import Field, Settings, _warn_once, configs, table, with_defaults


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
    made = Small()
    assert (made.size, made.names, made.maybe, made.colour) == (3, [], None, Colour.red)
    made.size = 7
    assert made.size == 7
    assert Small().size == 3


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("ready", 1, "Small.ready is 1; use True or False"),
        ("ready", "yes", "use True or False"),
        ("size", True, "Small.size is True; use a whole number of at least 1"),
        ("size", 0, "of at least 1"),
        ("size", 2.0, "whole number"),
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
    made = Small()
    with pytest.raises(ConfigError, match=words):
        setattr(made, name, value)
    assert made == Small()


def test_an_int_is_fine_where_a_float_is_wanted_and_numpy_numbers_are_numbers() -> None:
    made = Small()
    made.rate, made.size, made.ready = 2, np.int64(5), np.bool_(True)
    assert (made.rate, made.size, made.ready) == (2.0, 5, True)
    assert type(made.rate) is float
    assert type(made.size) is int


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
    made = Small()
    made.later = False
    with pytest.raises(
        ConfigError, match=r"Small.later is True, which Argosy does not have yet \(comes later\)"
    ):
        made.later = True
    with pytest.raises(ConfigError, match="colour is blue, which Argosy does not have yet"):
        made.colour = Colour.blue
    made.colour = Colour.red


def test_what_paddle_has_on_by_default_is_accepted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "argosy"):
        made = Small()
        assert made.on
        made.on = False
        assert not caplog.records
        made.on = True
        Small().on = True
    assert [r.getMessage() for r in caplog.records] == [
        "Small.on=True is accepted, but not done yet: would be on"
    ]


def test_configs_take_the_given_keys_keep_the_others_and_replace_lists() -> None:
    made = Small()
    made.fuse_configs = {"bytes": 2}
    made.fuse_configs = {"mode": "b"}
    assert made.fuse_configs == {"bytes": 2, "mode": "b"}
    made.names = ["a"]
    made.names = ("b",)
    assert made.names == ["b"]


def test_a_dict_with_one_wrong_value_assigns_none_of_it() -> None:
    made = Small()
    with pytest.raises(ConfigError):
        made.fuse_configs = {"bytes": 2, "mode": "c"}
    assert made.fuse_configs["bytes"] == 8


def test_what_is_read_is_a_copy() -> None:
    made = Small()
    made.names.append("a")
    made.fuse_configs["bytes"] = 9
    assert made == Small()


def test_settings_below_are_live_and_have_the_defaults_of_their_place() -> None:
    made = Large()
    assert made.small.size == 4
    made.small.ready = True
    assert made.small.ready
    mine = Small()
    made.small = mine
    mine.size = 9
    assert made.small.size == 9
    with pytest.raises(ConfigError, match="Large.small is 3; use an object of Small"):
        made.small = 3


def test_a_copy_is_equal_and_independent() -> None:
    made = Large()
    made.small.names = ["a"]
    for other in (copy.deepcopy(made), copy.copy(made)):
        assert other == made
        other.small.names = ["b"]
        assert other != made
    assert made.small.names == ["a"]
    assert made != Small()


def test_repr_shows_what_differs_from_the_default() -> None:
    made = Large()
    assert repr(made) == "Large()"
    made.width = 1
    made.small.size, made.small.fuse_configs = 5, {"bytes": 1}
    assert repr(made) == "Large(small=Small(size=5, fuse_configs=fuse_configs(bytes=1)))"


def test_frozen_settings_refuse_every_assignment_but_a_copy_does_not() -> None:
    made = Large()
    made.freeze()
    with pytest.raises(ConfigError, match="set after a program was built.*set it before minimize"):
        made.width = 2
    with pytest.raises(ConfigError, match="Small.size is set after"):
        made.small.size = 5
    with pytest.raises(ConfigError, match="fuse_configs"):
        made.small.fuse_configs = {"bytes": 1}
    free = copy.deepcopy(made)
    free.small.size = 5
    assert free.small.size == 5


def test_every_field_is_listed_for_completion() -> None:
    assert set(Small.fields) <= set(dir(Small()))


@given(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.text()), st.binary()
    )
)
def test_any_value_is_either_kept_as_it_is_or_refused(value: object) -> None:
    for name in Small.fields:
        made = Small()
        try:
            setattr(made, name, value)
        except ConfigError:
            assert made == Small()
        else:
            assert getattr(made, name) == value
