"""The output of `print(strategy)`: a box with a section for each switch that is on, then all the others.

+==============================================================================+
|                                amp=True <-> amp_configs                      |
+------------------------------------------------------------------------------+
|                     init_loss_scaling                 1024.0               * |
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable

from argosy.framework.strategy_settings import Settings, shown

_ORDER = (
    *("lars", "lamb", "dgc", "amp", "gradient_merge", "recompute", "sync_batch_norm", "localsgd"),
    *("adaptive_localsgd", "fp16_allreduce", "use_hierarchical_allreduce", "sharding"),
)
"""The strategies in the order in which they change a program: first the optimizer, then communication."""
_KEY = _VALUE = 38
_GAP = 2
_WIDTH = _KEY + _GAP + _VALUE
_BORDER = "+" + "=" * _WIDTH + "+"
_LINE = "+" + "-" * _WIDTH + "+"
_PIECE = _VALUE - 4  # characters of a value per line; the mark follows them


def overview(strategy: Settings) -> str:
    """The box, indented by four spaces; a `*` marks a value that differs from the default."""
    switches = [n for n in strategy.fields if f"{n}_configs" in strategy.fields]
    nested = {"build_strategy", "execution_strategy"}
    flags = [
        n for n in strategy.fields if n not in nested and not n.endswith("_configs") and n not in switches
    ]
    lines = [_BORDER, _centred(""), _centred("DistributedStrategy Overview"), _centred("")]
    for name in switches:
        if getattr(strategy, name):
            part = strategy.part(f"{name}_configs")
            lines += _section(f"{name}=True <-> {name}_configs", part, part.fields)
    lines += _section("Environment Flags, Communication Flags", strategy, flags)
    lines += _section("Build Strategy", strategy.part("build_strategy"))
    lines += _section("Execution Strategy", strategy.part("execution_strategy"))
    return "\n".join("    " + line for line in [*lines, _BORDER, "* differs from the default"])


def applied(strategy: Settings) -> str:
    """The strategies that are on, in their order, with the settings that differ from the defaults.

    amp, gradient_merge (k_steps 4), sharding
    """
    texts = []
    for name in _ORDER:
        if getattr(strategy, name):
            part = strategy.part(f"{name}_configs") if f"{name}_configs" in strategy.fields else None
            names = [] if part is None else [n for n in part.fields if part.is_changed(n)]
            changed = ", ".join(f"{n} {_text(getattr(part, n))}" for n in names)
            texts.append(f"{name} ({changed})" if changed else name)
    return ", ".join(texts)


def changed_settings(settings: Settings, prefix: str = "") -> dict[str, str]:
    """The settings that differ from their defaults, as text by dotted name: amp_configs.init_loss_scaling."""
    changed: dict[str, str] = {}
    for name in filter(settings.is_changed, settings.fields):
        if settings.fields[name].is_part:
            changed |= changed_settings(settings.part(name), f"{prefix}{name}.")
        else:
            changed[prefix + name] = _text(getattr(settings, name))
    return changed


def _section(title: str, settings: Settings, names: Iterable[str] | None = None) -> list[str]:
    lines = [_BORDER, _centred(title), _LINE]
    for name in settings.fields if names is None else names:
        lines += _rows(name.lstrip("_"), getattr(settings, name), settings.is_changed(name))
    return lines


def _rows(name: str, value: object, changed: bool) -> list[str]:
    """The lines of a value: one for a short value, one per item for a list, several for a long text."""
    items = [str(item) for item in value] if isinstance(value, list) else [_text(value)]
    pieces = [item[i : i + _PIECE] for item in items for i in range(0, len(item), _PIECE)] or [""]
    rows = []
    for key, piece in zip([name, *[""] * len(pieces)], pieces, strict=False):
        mark = "*" if changed and key else " "
        rows.append(f"|{key:>{_KEY}}{'':{_GAP}}{f'{piece:^{_VALUE}}'[:-2]}{mark} |")
    return rows


def _text(value: object) -> str:
    return value if isinstance(value, str) else shown(value)


def _centred(text: str) -> str:
    return f"|{text:^{_WIDTH}}|"
