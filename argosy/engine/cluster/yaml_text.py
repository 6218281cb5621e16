"""Values as YAML that people read: block style, strings quoted only where YAML would read them as something else."""

# SPDX-License-Identifier: Apache-2.0
import json
import re
from collections.abc import Iterator, Mapping, Sequence

Value = str | int | bool | None | Mapping[str, "Value"] | Sequence["Value"]

_WORD = r"(?:[A-Za-z0-9/_.@+=,-]|:(?=[A-Za-z0-9/]))+"
_PLAIN = re.compile(rf"(?=[A-Za-z/_]){_WORD}(?: {_WORD})*")
_RESERVED = frozenset({"y", "n", "yes", "no", "true", "false", "on", "off", "null"})
"""What a parser of YAML 1.1 reads as a boolean or null, in any case."""


def documents(values: Sequence[Value]) -> str:
    """One YAML document per value."""
    return "---\n".join("\n".join(_lines(value)) + "\n" for value in values)


def _lines(value: Value) -> Iterator[str]:
    """The lines of a value; nested ones are indented."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _entry(f"{_scalar(key)}:", item, "  ")
    elif isinstance(value, Sequence) and value and not isinstance(value, str):
        for item in value:
            if isinstance(item, str | int | None) or not item:
                yield from _entry("-", item, "  ")
            else:
                first, *rest = _lines(item)
                yield f"- {first}"
                yield from (f"  {line}" for line in rest)
    else:
        yield from _entry("", value, "")


def _entry(head: str, value: Value, indent: str) -> Iterator[str]:
    """A key or dash with its value."""
    space = " " if head else ""
    if isinstance(value, str) and head and (chomp := _block(value)):
        yield f"{head} {chomp}"
        yield from (f"{indent}{line}" if line else "" for line in value.removesuffix("\n").split("\n"))
    elif isinstance(value, str | int | None):
        yield f"{head}{space}{_scalar(value)}"
    elif not value:
        yield f"{head}{space}{'{}' if isinstance(value, Mapping) else '[]'}"
    else:
        yield head
        yield from (f"{indent}{line}" for line in _lines(value))


def _block(text: str) -> str:
    """The indicator of a literal block if the text has several lines and fits into one, else ''."""
    lines = text.removesuffix("\n").split("\n")
    fits = lines[0][:1] not in ("", " ") and lines[-1] != "" and all(line.isprintable() for line in lines)
    if not fits or "\n" not in text:
        return ""
    return "|" if text.endswith("\n") else "|-"


def _scalar(value: str | int | None) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _RESERVED:
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in quoted)
