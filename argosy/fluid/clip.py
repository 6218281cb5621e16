"""Gradient clipping under the names of Paddle 1.x; `need_clip` says of a Parameter whether it is clipped."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Parameter
from argosy.framework.missing import missing
from argosy.nn.clip import ClipGradBase, ClipGradByGlobalNorm, ClipGradByNorm, ClipGradByValue

__all__ = ["GradientClipByGlobalNorm", "GradientClipByNorm", "GradientClipByValue"]

NeedClip = Callable[[Parameter], bool] | None


class _Chosen(ClipGradBase):
    """Clips the parameters for which a function says so."""

    need_clip: NeedClip = None

    def choose(self, need_clip: NeedClip) -> None:
        if need_clip is not None and not callable(need_clip):
            raise ConfigError(
                f"{type(self).__name__}: need_clip is {need_clip!r}; use a function of a Parameter"
            )
        self.need_clip = need_clip

    def applies_to(self, parameter: Parameter) -> bool:
        return parameter.need_clip and (self.need_clip is None or self.need_clip(parameter))


class GradientClipByValue(_Chosen, ClipGradByValue):
    """nn.ClipGradByValue."""

    def __init__(self, max: float, min: float | None = None, need_clip: NeedClip = None) -> None:
        super().__init__(max, min)
        self.choose(need_clip)


class GradientClipByNorm(_Chosen, ClipGradByNorm):
    """nn.ClipGradByNorm."""

    def __init__(self, clip_norm: float, need_clip: NeedClip = None) -> None:
        super().__init__(clip_norm)
        self.choose(need_clip)


class GradientClipByGlobalNorm(_Chosen, ClipGradByGlobalNorm):
    """nn.ClipGradByGlobalNorm."""

    def __init__(
        self, clip_norm: float, group_name: str = "default_group", need_clip: NeedClip = None
    ) -> None:
        super().__init__(clip_norm, group_name)
        self.choose(need_clip)


__getattr__ = missing(__name__, globals())
