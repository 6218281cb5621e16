"""How a page's blocks are found, and what counts as the same output."""

# SPDX-License-Identifier: Apache-2.0
import re
from pathlib import Path

import pytest

from tests.docs import code_blocks
from tests.docs.code_blocks import compare, run, sections

PAGE = """# Title

```python
import math
```

## First

```python
print(math.pi)
```
```text
3.14159
```

## Second

```python
1 / 0
```
```text
ZeroDivisionError: …
```
```python title="double.py"
import sys

print(2 * float(sys.argv[1]))
```
```sh
python double.py 1.5
```
```text
3.0
```
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page that `run` and `sections` find under its name."""
    monkeypatch.setattr(code_blocks, "ROOT", tmp_path)
    sections.cache_clear()
    file = tmp_path / "page.md"
    file.write_text(PAGE)
    return file


def test_snippets_files_and_commands_run_section_by_section(page: Path) -> None:
    assert [section.title for section in sections(page.name)] == ["", "First", "Second"]
    assert run(page.name, sections(page.name), page.parent) == {"python double.py 1.5": "3.0\n"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("3.14159", "3.2"),
        ("```text\n3.14159\n```\n", ""),
        ("ZeroDivisionError", "ValueError"),
        ("3.0\n", "3\n"),
    ],
)
def test_a_page_that_shows_something_else_fails(page: Path, old: str, new: str) -> None:
    page.write_text(PAGE.replace(old, new))
    with pytest.raises(AssertionError, match=r"page\.md"):
        run(page.name, sections(page.name), page.parent)


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("loss 0.25001\n", "loss 0.25"),
        ("a long line of output\n", "a long line\nof output"),
        ("before\nloss 1.5\nafter\n", "…\nloss 1.5\n…"),
        ("built at train.py:41 in forward", "built at train.py:9 in forward"),
    ],
)
def test_the_same_output(printed: str, shown: str) -> None:
    compare(printed, shown, "page.md:1")


@pytest.mark.parametrize(
    ("printed", "shown"),
    [("loss 0.26", "loss 0.25"), ("3 rows", "4 rows"), ("loss 1.5\nloss 1.6", "loss 1.5"), ("x", "")],
)
def test_other_output(printed: str, shown: str) -> None:
    with pytest.raises(AssertionError, match="page.md:1 shows"):
        compare(printed, shown, "page.md:1")


@pytest.mark.parametrize(
    ("fence", "message"),
    [
        ('python title="fragment: the net is yours"\nfleet.innit()', "fleet.innit does not exist"),
        ('python title="fragment: a part"\npass pass', "invalid syntax"),
        ('python title="a part"\npass', "begins with `fragment: `"),
        ('sh title="needs two hosts"\nfleetrun --ipss=a,b train.py', "did you mean '--ips'"),
        ('sh title="takes long"\npython benchmarks/none.py', "python benchmarks/none.py"),
        ('sh title="takes long"\nfleetrun examples/pserver/train.py --modus sync', "unknown {'--modus'}"),
        ('sh title="takes long"\nmake tea', "make tea"),
    ],
)
def test_what_does_not_run_is_checked(fence: str, message: str) -> None:
    head, code = fence.split("\n")
    language, _, title = head.partition(" ")
    block = code_blocks.Block(language, title.removeprefix('title="').removesuffix('"'), code, 1)
    with pytest.raises(Exception, match=re.escape(message)):
        code_blocks.check(block, "page.md:1")
