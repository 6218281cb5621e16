"""YAML that people read: a parser that we did not write reads the same values back."""

# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.engine.cluster import yaml_text

_SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=12)
_VALUES = st.recursive(
    _SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=5), v, max_size=3)
)


@settings(max_examples=50, deadline=None)
@given(st.lists(_VALUES, min_size=1, max_size=3))
def test_a_parser_reads_the_same_values_back(values: list[yaml_text.Value]) -> None:
    yaml = pytest.importorskip("yaml")
    assert list(yaml.safe_load_all(yaml_text.documents(values))) == values


@pytest.mark.parametrize(
    "text",
    ["yes", "NO", "null", "12", "0x1f", "1e3", "12:30", "~", "-", "- a", "a: b", "a #b", "a:", "*a", ""],
)
def test_strings_that_look_like_something_else_are_quoted(text: str) -> None:
    assert yaml_text.documents([{"key": text}]) == f'key: "{text}"\n'


def test_values_are_in_block_style() -> None:
    value: yaml_text.Value = {
        "image": "registry/me/train:1",
        "command": ["sh", "-c", "set -e\nexec train\n"],
        "ports": [{"name": "launcher", "port": 1}],
        "empty": {},
        "none": [],
        "flag": True,
    }
    assert yaml_text.documents([value, "second"]) == (
        "image: registry/me/train:1\n"
        "command:\n"
        "  - sh\n"
        '  - "-c"\n'
        "  - |\n"
        "    set -e\n"
        "    exec train\n"
        "ports:\n"
        "  - name: launcher\n"
        "    port: 1\n"
        "empty: {}\n"
        "none: []\n"
        "flag: true\n"
        "---\n"
        "second\n"
    )
