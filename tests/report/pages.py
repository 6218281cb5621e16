"""Reads a page as a browser's parser would: its embedded data, its text, and everything that could run or load."""

# SPDX-License-Identifier: Apache-2.0
import json
from html.parser import HTMLParser
from typing import Any

_VOID = {"meta", "input", "br", "img", "link"}


class ParsedPage(HTMLParser):
    """The elements of a page; raises AssertionError if they are not nested."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script":
            self.scripts[-1] += data
        elif not self._open or self._open[-1] != "style":
            self.text += data

    @property
    def data(self) -> dict[str, Any]:
        """The embedded JSON."""
        embedded = [
            script
            for script, (_, attributes) in zip(
                self.scripts, [t for t in self.tags if t[0] == "script"], strict=True
            )
            if attributes.get("type") == "application/json"
        ]
        assert len(embedded) == 1
        return dict(json.loads(embedded[0]))

    @property
    def policy(self) -> str:
        """The Content-Security-Policy."""
        return next(a["content"] or "" for t, a in self.tags if t == "meta" and "http-equiv" in a)

    def assert_inert(self) -> None:
        """Nothing of the page loads anything, and no attribute runs or styles."""
        for tag, attributes in self.tags:
            assert tag not in ("img", "link", "iframe", "object", "embed", "base", "form")
            assert not {name for name in attributes if name.startswith("on") or name in ("style", "src")}
            assert (attributes.get("href") or "#").startswith("#")
        assert "default-src 'none'" in self.policy
        assert "unsafe" not in self.policy
        assert "http" not in self.policy
