"""Gradient clipping with the names of Paddle 1.x; `need_clip` is a predicate that selects the parameters to clip."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

from argosy.engine.errors import ArgumentTypeError
from argosy.engine.ir.variable import Parameter
from argosy.framework.missing import missing
from argosy.nn.clip import ClipGradBase, ClipGradByGlobalNorm, ClipGradByNorm, ClipGradByValue

__all__ = ["GradientClipByGlobalNorm", "GradientClipByNorm", "GradientClipByValue"]

NeedClip = Callable[[Parameter], bool] | None


class _SelectiveClip(ClipGradBase):
    """Clips the parameters for which the predicate `need_clip` is true."""

    need_clip: NeedClip = None

    def set_need_clip(self, need_clip: NeedClip) -> None:
        if need_clip is not None and not callable(need_clip):
            raise ArgumentTypeError(
                f"{type(self).__name__}: need_clip is {need_clip!r}; use a function of a Parameter"
            )
        self.need_clip = need_clip

    def applies_to(self, parameter: Parameter) -> bool:
        return parameter.need_clip and (self.need_clip is None or self.need_clip(parameter))


class GradientClipByValue(_SelectiveClip, ClipGradByValue):
    """nn.ClipGradByValue."""

    def __init__(self, max: float, min: float | None = None, need_clip: NeedClip = None) -> None:
        super().__init__(max, min)
        self.set_need_clip(need_clip)


class GradientClipByNorm(_SelectiveClip, ClipGradByNorm):
    """nn.ClipGradByNorm."""

    def __init__(self, clip_norm: float, need_clip: NeedClip = None) -> None:
        super().__init__(clip_norm)
        self.set_need_clip(need_clip)


class GradientClipByGlobalNorm(_SelectiveClip, ClipGradByGlobalNorm):
    """nn.ClipGradByGlobalNorm."""

    def __init__(
        self, clip_norm: float, group_name: str = "default_group", need_clip: NeedClip = None
    ) -> None:
        super().__init__(clip_norm, group_name)
        self.set_need_clip(need_clip)


__getattr__ = missing(__name__, globals())
