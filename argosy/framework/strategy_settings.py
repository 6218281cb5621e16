"""Settings objects: each field is declared once in a table, and assignment validates the value.

    class BuildStrategy(Settings):
        title = message = "BuildStrategy"
        fields = table(
            Field("fuse_bn_act_ops", "bool", False, "not yet", "fuse batch_norm and its activation"),

Every field has a status. When a switch is implemented, change it to "works":

    works      implemented as its help says
    always     any value is accepted and has no effect
    not yet    not supported: any value but the default raises
    pending    on by default in Paddle and not supported yet: any value but False logs a warning once
"""

# SPDX-License-Identifier: Apache-2.0
import copy
import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, Literal, Self, TypeVar

import numpy as np

from argosy.engine.errors import ArgumentTypeError, ConfigError, UnknownNameError, UnsupportedError, nearest
from argosy.engine.ir.variable import Variable
from argosy.engine.log import logger
from argosy.framework import checks

Status = Literal["works", "always", "not yet", "pending"]
_Settings = TypeVar("_Settings", bound="Settings")


@dataclass(frozen=True)
class Field:
    """One row of a table: a name, the valid values, and the status of the implementation."""

    name: str
    kind: Any
    """A key of `KINDS`, an `IntEnum`, or a nested class of settings."""
    default: Any
    status: Status = "works"
    help: str = ""
    least: float | None = None
    above: float | None = None
    below: float | None = None
    among: tuple[str, ...] = ()
    not_yet: tuple[object, ...] = ()
    """The unsupported values of a field that is otherwise supported."""

    @property
    def is_part(self) -> bool:
        """True for nested settings, with fields of their own; the default is the class to instantiate."""
        return isinstance(self.kind, type) and issubclass(self.kind, Settings)

    def checked(self, what: str, value: object) -> Any:
        """The value to store; raises a ConfigError if its type is wrong or it is out of range."""
        if isinstance(self.kind, type):
            return _member(what, value, self.kind)
        return KINDS[self.kind](what, value, self)


def table(*rows: Field) -> dict[str, Field]:
    """The rows by name."""
    return {row.name: row for row in rows}


class Settings:
    """Values for the fields of a table; reading or assigning any other name raises."""

    title: ClassVar[str]
    """The name in messages."""
    message: ClassVar[str]
    """The name of its protobuf message."""
    fields: ClassVar[dict[str, Field]] = {}

    _values: dict[str, Any]
    _parts: dict[str, "Settings"]
    _frozen: bool

    def __init__(self) -> None:
        parts = {n: f.default() for n, f in self.fields.items() if f.is_part}
        self.__dict__.update(_values={}, _parts=parts, _frozen=False)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy and pickle look these up before __init__ has run
            raise AttributeError(name)
        field = self._field(name)
        if field.is_part:
            part = self._parts[name]
            return part.as_dict() if isinstance(part, Configs) else part
        value = self._values.get(name, field.default)
        return list(value) if isinstance(value, tuple) else value

    def __setattr__(self, name: str, value: object) -> None:
        field = self._field(name)
        if self._frozen:
            raise ConfigError(
                f"{self._label(name)} is set after a program was built with this {self.title}; set it before "
                "minimize, or change a copy (copy.deepcopy) and build another program with that"
            )
        if not field.is_part:
            self._values[name] = self._accepted(field, value)
        elif isinstance(self._parts[name], Configs):
            self._parts[name].update(value)
        elif isinstance(value, field.kind):
            self._parts[name] = value
        else:
            raise ConfigError(f"{self._label(name)} is {value!r}; use an object of {field.kind.title}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.fields]

    def update(self, given: object) -> None:
        """Assign the items of a dict; if one is invalid, raise and assign none."""
        if not isinstance(given, Mapping):
            raise ArgumentTypeError(
                f"{self.title} is {given!r}; use a dict with keys of {', '.join(self.fields)}"
            )
        trial = copy.deepcopy(self)
        for name, value in given.items():
            setattr(trial, str(name), value)
        for name, value in given.items():
            setattr(self, str(name), value)

    def part(self, name: str) -> "Settings":
        """The nested settings of this name."""
        return self._parts[name]

    def is_assigned(self, name: str) -> bool:
        """True if the field was assigned, whatever the value."""
        return name in self._values

    def is_changed(self, name: str) -> bool:
        """True if the field differs from its default."""
        if name in self._parts:
            return any(map(self._parts[name].is_changed, self._parts[name].fields))
        return bool(self._values.get(name, self.fields[name].default) != self.fields[name].default)

    def as_dict(self) -> dict[str, Any]:
        """Every field with its value."""
        return {name: getattr(self, name) for name in self.fields}

    def freeze(self) -> None:
        """Reject later assignments, in nested settings too: a program was built with these values."""
        self.__dict__["_frozen"] = True
        for part in self._parts.values():
            part.freeze()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copied = memo[id(self)] = type(self)()
        copied._values.update(self._values)
        copied._parts.update({name: copy.deepcopy(part, memo) for name, part in self._parts.items()})
        return copied  # not frozen: a copy may be changed

    def __copy__(self) -> Self:
        return copy.deepcopy(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Settings) or other.title != self.title:
            return NotImplemented
        return self.as_dict() == other.as_dict()

    __hash__ = None  # type: ignore[assignment]  # two that are equal now may differ later

    def __repr__(self) -> str:
        changed = (
            f"{name}={self._parts.get(name, getattr(self, name))!r}"
            for name in self.fields
            if self.is_changed(name)
        )
        return f"{self.title}({', '.join(changed)})"

    def _label(self, name: str) -> str:
        return f"{self.title}.{name}"

    def _field(self, name: str) -> Field:
        if name in self.fields:
            return self.fields[name]
        nested = [
            n for n, part in self._parts.items() if name in part.fields and not isinstance(part, Configs)
        ]
        hint = f" (it is in {nested[0]}: use .{nested[0]}.{name})" if nested else nearest(name, self.fields)
        raise UnknownNameError(f"{self.title} has no {name!r}{hint}")

    def _accepted(self, field: Field, value: object) -> Any:
        """The value to store; raises if it is invalid or unsupported."""
        label = self._label(field.name)
        checked = field.checked(label, value)
        if checked in field.not_yet or (field.status == "not yet" and checked != field.default):
            raise UnsupportedError(
                f"{label} is {shown(checked)}, which is not supported ({field.help}); "
                f"leave it at {shown(field.default)}"
            )
        if field.status == "pending" and checked is not False:
            _warn_once(f"{label}={shown(checked)} is accepted, but has no effect yet: {field.help}")
        return checked


class Configs(Settings):
    """The settings of one switch, which the user reads and assigns as a dict."""

    def _label(self, name: str) -> str:
        return f"{self.title}[{name!r}]"


def configs(switch: str, message: str, *rows: Field) -> Field:
    """A row of a table: the dict `<switch>_configs` with these keys."""
    title = f"{switch}_configs"
    kind = type(message, (Configs,), {"title": title, "message": message, "fields": table(*rows)})
    return Field(title, kind, kind, "works", f"settings of {switch}")


def with_defaults(kind: type[_Settings], **defaults: object) -> type[_Settings]:
    """The same settings with other defaults."""
    rows = {n: replace(f, default=defaults.get(n, f.default)) for n, f in kind.fields.items()}
    return type(kind.__name__, (kind,), {"fields": rows})


def shown(value: object) -> str:
    """A value as messages and tables print it: an enum by its name, a list as a list."""
    if isinstance(value, enum.IntEnum):
        return value.name
    return str(list(value)) if isinstance(value, tuple) else repr(value)


@cache
def _warn_once(message: str) -> None:
    logger.warning(message)


# --- validation by kind -------------------------------------------------------------------------------


def _bool(what: str, value: object, _: Field) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise ArgumentTypeError(f"{what} is {value!r}; use True or False")
    return bool(value)


def _bool_or_none(what: str, value: object, field: Field) -> bool | None:
    if value is not None and not isinstance(value, bool | np.bool_):
        raise ArgumentTypeError(f"{what} is {value!r}; use True, False or None")
    return None if value is None else bool(value)


def _int(what: str, value: object, field: Field) -> int:
    number = checks.integer(what, value, least=None if field.least is None else int(field.least))
    if not -(2**31) <= number < 2**31:
        raise ConfigError(f"{what} is {value!r}; use an integer of at most 32 bits")
    return number


def _float(what: str, value: object, field: Field) -> float:
    number = checks.number(what, value, above=field.above, least=field.least, below=field.below)
    if isinstance(value, int) and number != value:
        raise ConfigError(f"{what} is {value}, which a float cannot represent exactly; use {number!r}")
    return number


def _str(what: str, value: object, field: Field) -> str:
    if not isinstance(value, str):
        raise ArgumentTypeError(f"{what} is {value!r}; use a string")
    if field.among and value not in field.among:
        raise ConfigError(f"{what} is {value!r}; use one of {', '.join(map(repr, field.among))}")
    return value


def _str_or_none(what: str, value: object, field: Field) -> str | None:
    return None if value is None else _str(what, value, field)


def _none(what: str, value: object, field: Field) -> None:
    if value is not None:
        raise ConfigError(f"{what} is {value!r}, which is not supported ({field.help}); leave it at None")


def _member(what: str, value: object, kind: type) -> Any:
    if not isinstance(value, kind):
        members = ", ".join(f"{kind.__qualname__}.{m}" for m in kind.__members__)  # type: ignore[attr-defined]
        raise ArgumentTypeError(f"{what} is {value!r}; use one of {members}")
    return value


def _list_of(
    check_item: Callable[[str, object, Field], Any],
) -> Callable[[str, object, Field], tuple[Any, ...]]:
    def check(what: str, values: object, field: Field) -> tuple[Any, ...]:
        if not isinstance(values, list | tuple | set | frozenset):
            raise ArgumentTypeError(f"{what} is {values!r}; use a list")
        items = tuple(check_item(f"{what}[{i}]", value, field) for i, value in enumerate(values))
        return tuple(sorted(items)) if isinstance(values, set | frozenset) else items

    return check


def _names(what: str, values: object, field: Field) -> tuple[str, ...]:
    """Names of variables, or Variables themselves; "auto" is ("auto",)."""
    if isinstance(values, str) and values != "auto":
        raise ConfigError(f"{what} is {values!r}; use a list of names or Variables, or 'auto'")
    listed = [values] if isinstance(values, str) else values
    if isinstance(listed, list | tuple):
        listed = [value.name if isinstance(value, Variable) else value for value in listed]
    names: tuple[str, ...] = _list_of(_str)(what, listed, field)
    return names


KINDS: dict[str, Callable[[str, object, Field], Any]] = {
    "bool": _bool,
    "bool or None": _bool_or_none,
    "int": _int,
    "float": _float,
    "str": _str,
    "str or None": _str_or_none,
    "None": _none,
    "list of str": _list_of(_str),
    "list of names": _names,
    "list of int": _list_of(_int),
    "list of float": _list_of(_float),
}
