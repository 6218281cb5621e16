"""Frozen dataclasses from and to JSON and TOML, with validation: wrong types, unknown keys and versions raise."""

# SPDX-License-Identifier: Apache-2.0
import dataclasses
import json
import math
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from argosy.engine.errors import ConfigError
from argosy.engine.files import replacement

T = TypeVar("T")
MAX_BYTES = 1 << 28
"""A larger file is rejected before it is read: no trace is that large."""


def read_text(path: Path, what: str) -> str:
    """The text of a file; raises ConfigError if it is missing, too large or not text."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(
                f"{path} has {path.stat().st_size} bytes, and {what} at most {MAX_BYTES}; give another file"
            )
        return path.read_text()
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"{what} {path} cannot be read: {e}; give the path of a readable file") from e


def read_json(path: Path, what: str) -> Any:
    """The content of a JSON file."""
    try:
        return json.loads(read_text(path, what))
    except (ValueError, RecursionError) as e:
        raise ConfigError(f"{what} {path} is not JSON ({e}); write it again") from e


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The content of a TOML file."""
    try:
        return tomllib.loads(read_text(path, what))
    except tomllib.TOMLDecodeError as e:
        raise ConfigError(f"{what} {path} is not TOML ({e}); correct it there") from e


def write_text(path: Path, text: str) -> None:
    """Replace a file atomically."""
    with replacement(path) as temporary:
        temporary.write_text(text)


def from_data(kind: type[T], data: Any, where: str, version: int | None = None) -> T:
    """A dataclass from mappings and lists; `version` is compared with the key of this name, which is removed."""
    if not isinstance(data, Mapping):
        raise ConfigError(f"{where} is a {type(data).__name__}; a table of {kind.__name__} is needed")
    content = dict(data)
    if version is not None:
        found = content.pop("version", None)
        if found != version:
            raise ConfigError(
                f"{where} has version {found!r}, and this Argosy reads version {version}; write it again"
            )
    _reject_unknown(kind, content, where)
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as e:
        if isinstance(e.__cause__, ConfigError):
            raise ConfigError(f"{where}: {e.__cause__}") from None
        raise ConfigError(f"{where}: {e}; correct it") from None


def to_data(value: Any, version: int | None = None) -> dict[str, Any]:
    """Mappings and lists of a dataclass, without the fields that have their defaults."""
    fields: dict[str, Any] = _without_defaults(value)
    return fields if version is None else {"version": version, **fields}


def _without_defaults(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: _without_defaults(getattr(value, f.name))
            for f in dataclasses.fields(value)
            if not _is_default(f, getattr(value, f.name))
        }
    if isinstance(value, tuple | list):
        return [_without_defaults(v) for v in value]
    if isinstance(value, Mapping):
        return {key: _without_defaults(v) for key, v in value.items()}
    return value


def _is_default(field: "dataclasses.Field[Any]", value: Any) -> bool:
    if field.default_factory is not dataclasses.MISSING:
        return bool(value == field.default_factory())
    return field.default is not dataclasses.MISSING and bool(value == field.default)


def _reject_unknown(kind: Any, data: Any, where: str) -> None:
    """Raise for a key that is not a field, at any depth: a misspelt key must not become a default."""
    if dataclasses.is_dataclass(kind) and isinstance(data, Mapping):
        hints = typing.get_type_hints(kind)
        for key, value in data.items():
            if key not in hints:
                raise ConfigError(f"{where} has the unknown key {key!r}; use one of {', '.join(hints)}")
            _reject_unknown(hints[key], value, f"{where}, {key}")
        return
    arguments, origin = typing.get_args(kind), typing.get_origin(kind)
    if isinstance(data, list) and origin is tuple:
        for number, item in enumerate(data):
            _reject_unknown(arguments[0], item, f"{where} {number}")
    elif isinstance(data, Mapping) and origin is dict:
        for key, value in data.items():
            _reject_unknown(arguments[1], value, f"{where}.{key}")
    elif origin in (typing.Union, types.UnionType):
        for choice in arguments:
            if dataclasses.is_dataclass(choice):
                _reject_unknown(choice, data, where)


def check(is_right: bool, message: str) -> None:
    """Raise ConfigError with this message unless it is right."""
    if not is_right:
        raise ConfigError(message)


def is_time(value: float) -> bool:
    """True for a finite number that is not negative."""
    return math.isfinite(value) and value >= 0


# --- TOML ---------------------------------------------------------------------------------------------


def toml_text(content: Mapping[str, Any]) -> str:
    """TOML of mappings, lists of mappings and plain values; tables come after the values."""
    lines = _toml_values(content)
    for key, value in content.items():
        if isinstance(value, Mapping):
            if all(isinstance(v, Mapping) for v in value.values()) and value:
                for name, inner in value.items():
                    lines += ["", f"[{key}.{_key(name)}]", *_toml_values(inner)]
            else:
                lines += ["", f"[{key}]", *_toml_values(value)]
        elif _is_tables(value):
            for entry in value:
                lines += ["", f"[[{key}]]", *_toml_values(entry)]
    return "\n".join(lines) + "\n"


def _toml_values(content: Mapping[str, Any]) -> list[str]:
    return [
        f"{_key(k)} = {_toml_value(v)}"
        for k, v in content.items()
        if not isinstance(v, Mapping) and not _is_tables(v)
    ]


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else json.dumps(name)


def _toml_value(value: Any) -> str:
    # JSON's strings, numbers, booleans and lists of them are TOML's, except inf.
    return str(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
