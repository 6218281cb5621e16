"""Pieces of HTML with all texts escaped."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable, Mapping, Sequence
from html import escape


def text(value: object) -> str:
    """A text, escaped for content and quoted attributes."""
    # A NUL or another control character of a log has no meaning in HTML, and parsers reject it.
    return escape(
        "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in str(value))
    )


def element(tag: str, content: str, **attributes: str) -> str:
    """An element with this HTML inside; `class_` is the attribute class."""
    given = "".join(f' {name.rstrip("_").replace("_", "-")}="{text(v)}"' for name, v in attributes.items())
    return f"<{tag}{given}>{content}</{tag}>"


def section(anchor: str, title: str, *parts: str, note: str = "") -> str:
    """A panel of the page; an empty text if it has no content."""
    content = "".join(filter(None, parts))
    if not content:
        return ""
    about = element("p", text(note), class_="note") if note else ""
    return element("section", element("h2", text(title)) + about + content, id=anchor, class_="panel")


def chart(name: str, title: str = "", note: str = "") -> str:
    """The place of a chart, which the script fills."""
    heading = element("h3", text(title)) if title else ""
    about = element("p", text(note), class_="note") if note else ""
    return element("div", f'{heading}{about}<div data-chart="{text(name)}"></div>', class_="block")


def pairs(rows: Mapping[str, object]) -> str:
    """A list of names and values; without those that are empty."""
    content = "".join(
        element("dt", text(name)) + element("dd", text(value))
        for name, value in rows.items()
        if value not in ("", None)
    )
    return element("dl", content, class_="pairs") if content else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str) -> str:
    """A table whose cells are HTML."""
    titles = element("tr", "".join(element("th", text(title), scope="col") for title in head))
    body = "".join(element("tr", "".join(element("td", cell) for cell in row)) for row in rows)
    content = element("caption", text(caption)) + element("thead", titles) + element("tbody", body)
    return element("div", element("table", content), class_="scroll", tabindex="0") if body else ""


def lines(content: Sequence[str], label: str) -> str:
    """Lines of a log."""
    return element("pre", text("\n".join(content)), tabindex="0", aria_label=label) if content else ""


def details(summary: str, content: str, is_open: bool = False) -> str:
    """A foldable part."""
    return f"<details{' open' if is_open else ''}>{element('summary', text(summary))}{content}</details>"
