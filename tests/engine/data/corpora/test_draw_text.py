"""Generated texts: the same files every time. tests/dataset/test_generated.py shows that they can be learned."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from argosy.engine.data.corpora import draw_text, sources
from argosy.engine.data.corpora.locate import Source

TEXTS = [
    sources.CONLL05,
    sources.IMIKOLOV,
    sources.MOVIELENS,
    sources.MOVIE_REVIEWS,
    sources.UCI_HOUSING,
    sources.WMT14,
    sources.WMT16,
]


@pytest.mark.parametrize("source", TEXTS, ids=lambda source: source.name)
def test_the_files_of_the_table_are_written_and_always_the_same(source: Source, tmp_path: Path) -> None:
    contents = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        source.draw(folder)
        contents.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert contents[0] == contents[1]
    assert contents[0].keys() == source.checksums.keys()


def test_invented_words_differ() -> None:
    assert len(set(draw_text.WORDS)) == 100
