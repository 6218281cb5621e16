"""Strategies as protobuf text, in the messages of Paddle's distributed_strategy.proto.

The message types are generated from the field tables, so that there is one list of fields. They are registered in a
separate descriptor pool: a Paddle in the same process may register the same names.
"""

# SPDX-License-Identifier: Apache-2.0
import copy
import re
from functools import partial
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.message import Message

from argosy.engine.errors import ConfigError, nearest
from argosy.engine.runtime.atomic_files import replace_files
from argosy.framework.strategy_settings import Settings

_PACKAGE = "paddle.fleet"
_Types = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bool": _Types.TYPE_BOOL,
    "bool or None": _Types.TYPE_BOOL,
    "int": _Types.TYPE_INT32,
    "float": _Types.TYPE_DOUBLE,  # Paddle has float, which would turn 0.8 into 0.800000011920929
    "str": _Types.TYPE_STRING,
    "names": _Types.TYPE_STRING,
}


def save(settings: Settings, path: Path) -> None:
    """Write the assigned fields; the write is atomic."""
    message = _message_type(type(settings))()
    _fill(message, settings, type(settings))
    text = text_format.MessageToString(message, as_utf8=True)
    try:
        replace_files({path: partial(_write, text)})
    except OSError as e:
        raise ConfigError(f"cannot write the strategy to {path}: {e.strerror or e}") from e


def load(settings: Settings, path: Path) -> None:
    """Assign the fields of the file; an unknown field, malformed text or an invalid value raises and assigns none."""
    message = _message_type(type(settings))()
    try:
        text_format.Parse(path.read_text(encoding="utf-8"), message)
    except OSError as e:
        raise ConfigError(f"cannot read the strategy {path}: {e.strerror}") from e
    except UnicodeDecodeError as e:
        raise ConfigError(f"{path} is not UTF-8 text; give a file written by save_to_prototxt") from e
    except text_format.ParseError as e:
        raise ConfigError(_explained(path, e, type(settings))) from e
    try:
        _assign(copy.deepcopy(settings), message)
        _assign(settings, message)
    except ConfigError as e:
        raise ConfigError(f"{path}: {e}") from e


def _write(text: str, path: Path) -> None:
    path.write_text(text, encoding="utf-8")


def _fill(message: Any, settings: Settings, defaults: type[Settings]) -> None:
    """Set the fields that were assigned, or that differ from the default that a reader of the file assumes."""
    for name, field in settings.fields.items():
        if field.is_part:
            _fill(getattr(message, _wire(name)), settings.part(name), field.default)
            continue
        value = getattr(settings, name)
        if value is None or value == []:
            continue  # protobuf text cannot express it, and every such default is None or []
        if isinstance(value, list):
            getattr(message, _wire(name)).extend(value)
        elif settings.is_assigned(name) or value != defaults.fields[name].default:
            setattr(message, _wire(name), value)


def _assign(settings: Settings, message: Message) -> None:
    names = {_wire(name): name for name in settings.fields}
    for descriptor, value in message.ListFields():
        name = names[descriptor.name]
        field = settings.fields[name]
        if field.is_part:
            _assign(settings.part(name), value)
        elif isinstance(field.kind, type):
            setattr(settings, name, field.kind(value))
        else:
            setattr(settings, name, list(value) if field.kind.startswith("list") else value)


def _explained(path: Path, error: text_format.ParseError, kind: type[Settings]) -> str:
    """The file, the line and, for an unknown field, the nearest known names."""
    unknown_field = re.search(r'Message type "paddle\.fleet\.(\w+)" has no field named "(\w+)"', str(error))
    where = f"{path}, line {error.GetLine()}"
    if unknown_field is None:
        return f"{where}: {str(error).split(' : ', 1)[-1]}; correct the line, or save the strategy again"
    message, name = unknown_field.groups()
    known = {k.message: [_wire(n) for n in k.fields] for k in _kinds(kind)}[message]
    return f"{where}: {message} has no field {name!r}{nearest(name, known)}; correct or remove it"


# --- the message types --------------------------------------------------------------------------------


def _message_type(kind: type[Settings]) -> type[Message]:
    file = descriptor_pb2.FileDescriptorProto(
        name="distributed_strategy.proto", package=_PACKAGE, syntax="proto2"
    )
    for each in _kinds(kind):
        _describe(file.message_type.add(name=each.message), each)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    message_class: type[Message] = message_factory.GetMessageClass(
        pool.FindMessageTypeByName(f"{_PACKAGE}.{kind.message}")
    )
    return message_class


def _describe(message: descriptor_pb2.DescriptorProto, kind: type[Settings]) -> None:
    for number, (name, field) in enumerate(kind.fields.items(), start=1):
        described = message.field.add(name=_wire(name), number=number, label=_Types.LABEL_OPTIONAL)
        if field.is_part:
            described.type, described.type_name = _Types.TYPE_MESSAGE, f".{_PACKAGE}.{field.kind.message}"
        elif isinstance(field.kind, type):
            described.type = _Types.TYPE_ENUM
            described.type_name = f".{_PACKAGE}.{kind.message}.{field.kind.__name__}"
            members = message.enum_type.add(name=field.kind.__name__)
            for member in field.kind:  # type: ignore[attr-defined]
                members.value.add(name=member.name, number=member.value)
        else:
            described.type = _SCALARS[field.kind.removeprefix("list of ")]
            if field.kind.startswith("list"):
                described.label = _Types.LABEL_REPEATED


def _kinds(root: type[Settings]) -> list[type[Settings]]:
    """A settings class and its nested settings classes."""
    return [root, *(f.kind for f in root.fields.values() if f.is_part)]


def _wire(name: str) -> str:
    """A field's name in the file: `_fuse_grad_size_in_TFLOPS` has no underscore there."""
    return name.lstrip("_")
