"""CoNLL-2005, semantic roles: who does what to whom. A word per line, and a column per verb of the sentence.

words.gz    props.gz
The         -       (A0*
cat         -       *)
sat         sit     (V*)
            (an empty line ends the sentence)
"""

# SPDX-License-Identifier: Apache-2.0
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from argosy.engine.data.corpora.archives import lines_of, member, readable
from argosy.engine.errors import CorruptFileError, DataError

_FOLDER = r"conll05st-release/test\.wsj"
_WORDS, _PROPS = rf"{_FOLDER}/words/test\.wsj\.words\.gz", rf"{_FOLDER}/props/test\.wsj\.props\.gz"
UNKNOWN_ID = 0


@dataclass(frozen=True)
class Proposition:
    """A sentence, one of its verbs, and the role of each word for this verb, as B-, I- and O tags."""

    words: list[str]
    verb: str
    tags: list[str]

    def sample(
        self, words: dict[str, int], verbs: dict[str, int], tags: dict[str, int]
    ) -> tuple[list[int], ...]:
        """Nine sequences: words; the words 2 and 1 before, at, 1 and 2 after the verb; verb; mark of these; tags."""
        at, length = self.tags.index("B-V"), len(self.words)
        padded = ["bos", "bos", *self.words, "eos", "eos"]
        context = [[words.get(word, UNKNOWN_ID)] * length for word in padded[at : at + 5]]
        mark = [int(abs(i - at) <= 2) for i in range(length)]
        numbers = [words.get(word, UNKNOWN_ID) for word in self.words]
        if self.verb not in verbs or not tags.keys() >= {*self.tags}:
            raise DataError(
                f"the dictionaries lack the verb {self.verb!r} or one of the tags {sorted({*self.tags})}; use those "
                "that belong to the sentences"
            )
        return (numbers, *context, [verbs[self.verb]] * length, mark, [tags[tag] for tag in self.tags])


def propositions(path: Path) -> Iterator[Proposition]:
    """The sentences of the archive, once for each verb."""
    with readable(path):
        words, props = (
            lines_of(gzip.decompress(member(path, name)).decode().rstrip()) for name in (_WORDS, _PROPS)
        )
    if len(words) != len(props):
        raise CorruptFileError(
            f"{path} has {len(words)} lines of words and {len(props)} of roles; use the original file"
        )
    rows: list[tuple[str, list[str]]] = []
    for word, columns in zip([*words, ""], [*(line.split() for line in props), []], strict=True):
        if columns:
            rows.append((word, columns))
        elif rows:
            verbs = [columns[0] for _, columns in rows if columns[0] != "-"]
            for number, verb in enumerate(verbs, start=1):
                brackets = [columns[number] for _, columns in rows]
                yield Proposition([word for word, _ in rows], verb, tags_of(brackets, path))
            rows = []


def tags_of(brackets: list[str], path: Path) -> list[str]:
    """(A0* * *) as B-A0 I-A0 I-A0, and * outside of brackets as O."""
    tags, role = [], ""
    for bracket in brackets:
        if bracket.startswith("("):
            role = bracket[1:].partition("*")[0]
            tags.append(f"B-{role}")
        elif bracket in ("*", "*)"):
            tags.append(f"I-{role}" if role else "O")
        else:
            raise CorruptFileError(f"{path} has the label {bracket!r}; use the original file")
        role = "" if bracket.endswith(")") else role
    return tags


def load_dict(path: Path) -> dict[str, int]:
    """A word per line."""
    return {line.strip(): number for number, line in enumerate(lines_of(path.read_text()))}


def load_label_dict(path: Path) -> dict[str, int]:
    """B- and I- of each role in the order of the file (in Paddle: of a set, another in each process), then O."""
    lines = path.read_text().split()
    roles = dict.fromkeys(line[2:] for line in lines if line.startswith(("B-", "I-")))
    return {tag: number for number, tag in enumerate([*(f"{p}-{r}" for r in roles for p in "BI"), "O"])}
