"""The table of unsupported names: an entry of a module covers the names below it."""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework import unsupported_names
from docs.scripts.paddle_names import listed


def test_a_name_has_its_own_entry_or_that_of_its_module() -> None:
    own, above = unsupported_names.entry("fluid.layers.prior_box"), unsupported_names.entry("jit.to_static")
    assert own is not None
    assert own.is_for_static_cpu
    assert not own.is_module
    assert above is unsupported_names.MODULES["jit"]
    assert not above.is_for_static_cpu
    assert unsupported_names.entry("static.data") is None


def test_a_reason_ends_without_a_full_stop_and_says_what_to_do() -> None:
    for name, entry in {**unsupported_names.NAMES, **unsupported_names.MODULES}.items():
        assert not entry.reason.endswith("."), name
        assert entry.reason[0].islower(), name


def test_most_entries_are_names_of_paddle_s_list() -> None:
    names = {f"{module}.{name}".removeprefix("paddle.") for module, name in listed()}
    unlisted = [name for name in unsupported_names.NAMES if name not in names]
    assert len(unlisted) < 20, unlisted  # names of later versions, and other spellings
