"""Transforms: objects that are called with an image, or with a tuple whose parts `keys` names.

    Compose([RandomCrop(28, padding=4), RandomHorizontalFlip(), ToTensor()])(image)

Random transforms draw from Python's `random`.
"""

# SPDX-License-Identifier: Apache-2.0
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from argosy.engine.errors import ConfigError
from argosy.vision.transforms import functional as F
from argosy.vision.transforms.pillow import Size, size_of


class Compose:
    """Transforms one after the other."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, data: Any) -> Any:
        for transform in self.transforms:
            try:
                data = transform(data)
            except Exception as e:
                e.add_note(f"in the transform {transform!r} of Compose")
                raise
        return data


class BaseTransform:
    """The base class: subclasses define `_apply_image`, and `_apply_<key>` for other `keys`.

    Called with a tuple, part i is transformed as keys[i] says; further parts are unchanged. `_get_params(inputs)` is
    called first, and its result is `self.params`: random numbers that all parts share.
    """

    def __init__(self, keys: Sequence[str] | None = None) -> None:
        self.keys = tuple(keys or ("image",))
        self.params: Any = None
        for key in self.keys:
            if not hasattr(self, f"_apply_{key}"):
                raise ConfigError(
                    f"{type(self).__name__} has no _apply_{key}, which keys={self.keys} needs; define it"
                )

    def __call__(self, inputs: Any) -> Any:
        parts = inputs if isinstance(inputs, tuple) else (inputs,)
        self.params = self._get_params(parts)
        keys = self.keys[: len(parts)]
        outputs = [getattr(self, f"_apply_{key}")(part) for key, part in zip(keys, parts, strict=False)]
        outputs.extend(parts[len(keys) :])
        return tuple(outputs) if isinstance(inputs, tuple) and len(outputs) > 1 else outputs[0]

    def _get_params(self, inputs: tuple[Any, ...]) -> Any:
        return None

    def _apply_image(self, image: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not define _apply_image")


class ToTensor(BaseTransform):
    """A tensor CHW; values of 8 bits become float32 from 0 to 1."""

    def __init__(self, data_format: str = "CHW", keys: Sequence[str] | None = None) -> None:
        super().__init__(keys)
        self.data_format = data_format

    def _apply_image(self, img: Any) -> Any:
        return F.to_tensor(img, self.data_format)


class Resize(BaseTransform):
    """Resize to (height, width); an int is the length of the shorter side."""

    def __init__(
        self, size: Size, interpolation: str = "bilinear", keys: Sequence[str] | None = None
    ) -> None:
        super().__init__(keys)
        self.size, self.interpolation = size, interpolation

    def _apply_image(self, img: Any) -> Any:
        return F.resize(img, self.size, self.interpolation)


class RandomResizedCrop(BaseTransform):
    """A random part of the image, resized: `scale` is its area, `ratio` its width by its height."""

    def __init__(
        self,
        size: Size,
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3.0 / 4, 4.0 / 3),
        interpolation: str = "bilinear",
        keys: Sequence[str] | None = None,
    ) -> None:
        super().__init__(keys)
        self.size = _pair(size)
        self.scale, self.ratio, self.interpolation = scale, ratio, interpolation

    def _get_params(self, inputs: tuple[Any, ...]) -> tuple[int, int, int, int]:
        height, width = size_of(inputs[self.keys.index("image")])
        for _ in range(10):
            area = random.uniform(*self.scale) * height * width
            aspect = math.exp(random.uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            rows, columns = round(math.sqrt(area / aspect)), round(math.sqrt(area * aspect))
            if 0 < rows <= height and 0 < columns <= width:
                return random.randint(0, height - rows), random.randint(0, width - columns), rows, columns
        # No such part fits: the middle, as large as the ratio allows.
        columns = min(width, round(height * self.ratio[1]))
        rows = min(height, round(width / self.ratio[0]))
        return (height - rows) // 2, (width - columns) // 2, rows, columns

    def _apply_image(self, img: Any) -> Any:
        return F.resize(F.crop(img, *self.params), self.size, self.interpolation)


class CenterCrop(BaseTransform):
    """The middle of the image."""

    def __init__(self, size: Size, keys: Sequence[str] | None = None) -> None:
        super().__init__(keys)
        self.size = _pair(size)

    def _apply_image(self, img: Any) -> Any:
        return F.center_crop(img, self.size)


class RandomCrop(BaseTransform):
    """A rectangle at a random place, after optional padding (see `pad`)."""

    def __init__(
        self,
        size: Size,
        padding: Size | None = None,
        pad_if_needed: bool = False,
        fill: Any = 0,
        padding_mode: str = "constant",
        keys: Sequence[str] | None = None,
    ) -> None:
        super().__init__(keys)
        self.size = _pair(size)
        self.padding, self.pad_if_needed = padding, pad_if_needed
        self.fill, self.padding_mode = fill, padding_mode

    def _get_params(self, inputs: tuple[Any, ...]) -> tuple[float, float]:
        return random.random(), random.random()

    def _apply_image(self, img: Any) -> Any:
        if self.padding is not None:
            img = F.pad(img, self.padding, self.fill, self.padding_mode)
        (height, width), (rows, columns) = size_of(img), self.size
        if self.pad_if_needed and (height < rows or width < columns):
            borders = (max(columns - width, 0), max(rows - height, 0))
            img = F.pad(img, borders, self.fill, self.padding_mode)
            height, width = size_of(img)
        if height < rows or width < columns:
            raise ConfigError(
                f"RandomCrop: {rows} x {columns} out of an image of {height} x {width}; set pad_if_needed"
            )
        top, left = (
            int(part * (room + 1))
            for part, room in zip(self.params, (height - rows, width - columns), strict=True)
        )
        return F.crop(img, top, left, rows, columns)


class _RandomFlip(BaseTransform):
    """Applies a flip with a probability."""

    flip: Callable[[Any], Any]

    def __init__(self, prob: float = 0.5, keys: Sequence[str] | None = None) -> None:
        super().__init__(keys)
        self.prob = prob

    def _get_params(self, inputs: tuple[Any, ...]) -> bool:
        return random.random() < self.prob

    def _apply_image(self, img: Any) -> Any:
        return type(self).flip(img) if self.params else img


class RandomHorizontalFlip(_RandomFlip):
    """Mirror left and right with probability `prob`."""

    flip = staticmethod(F.hflip)


class RandomVerticalFlip(_RandomFlip):
    """Mirror top and bottom with probability `prob`."""

    flip = staticmethod(F.vflip)


class Normalize(BaseTransform):
    """(img - mean) / std in float32; a number holds for three channels."""

    def __init__(
        self,
        mean: Any = 0.0,
        std: Any = 1.0,
        data_format: str = "CHW",
        to_rgb: bool = False,
        keys: Sequence[str] | None = None,
    ) -> None:
        super().__init__(keys)
        self.mean, self.std = ([v] * 3 if isinstance(v, int | float) else v for v in (mean, std))
        self.data_format, self.to_rgb = data_format, to_rgb

    def _apply_image(self, img: Any) -> Any:
        return F.normalize(img, self.mean, self.std, self.data_format, self.to_rgb)


class Transpose(BaseTransform):
    """An array with its axes in another order; HWC to CHW by default."""

    def __init__(self, order: Sequence[int] = (2, 0, 1), keys: Sequence[str] | None = None) -> None:
        super().__init__(keys)
        self.order = tuple(order)

    def _apply_image(self, img: Any) -> Any:
        array = np.asarray(img)
        return np.ascontiguousarray((array[:, :, None] if array.ndim == 2 else array).transpose(self.order))


class _RandomFactor(BaseTransform):
    """Applies a function with a random factor: from center - value to center + value, or from a given range."""

    adjust: Callable[[Any, float], Any]
    center = 1.0
    bounds = (0.0, math.inf)

    def __init__(self, value: float | Sequence[float], keys: Sequence[str] | None = None) -> None:
        super().__init__(keys)
        least, most = self.bounds
        spread = value if isinstance(value, int | float) else 0.0
        if isinstance(value, int | float):
            low, high = max(self.center - value, least), self.center + value
        else:
            low, high = float(value[0]), float(value[1])
        if spread < 0 or not least <= low <= high <= most:
            raise ConfigError(
                f"{type(self).__name__}: value={value!r}; give a number of 0 or more, or a range, so that factors are "
                f"between {least:g} and {most:g}"
            )
        self.range = (low, high)

    def _get_params(self, inputs: tuple[Any, ...]) -> float:
        return random.uniform(*self.range)

    def _apply_image(self, img: Any) -> Any:
        return img if self.params == self.center else type(self).adjust(img, self.params)


class BrightnessTransform(_RandomFactor):
    """A brightness from 1 - value to 1 + value."""

    adjust = staticmethod(F.adjust_brightness)


class ContrastTransform(_RandomFactor):
    """A contrast from 1 - value to 1 + value."""

    adjust = staticmethod(F.adjust_contrast)


class SaturationTransform(_RandomFactor):
    """A saturation from 1 - value to 1 + value."""

    adjust = staticmethod(F.adjust_saturation)


class HueTransform(_RandomFactor):
    """A shift of the hue from -value to value, at most 0.5."""

    adjust = staticmethod(F.adjust_hue)
    center = 0.0
    bounds = (-0.5, 0.5)


class ColorJitter(BaseTransform):
    """Brightness, contrast, saturation and hue at random, in a random order."""

    def __init__(
        self,
        brightness: Any = 0,
        contrast: Any = 0,
        saturation: Any = 0,
        hue: Any = 0,
        keys: Sequence[str] | None = None,
    ) -> None:
        super().__init__(keys)
        self.transforms: list[Callable[[Any], Any]] = [
            BrightnessTransform(brightness),
            ContrastTransform(contrast),
            SaturationTransform(saturation),
            HueTransform(hue),
        ]

    def _get_params(self, inputs: tuple[Any, ...]) -> Compose:
        return Compose(random.sample(self.transforms, 4))

    def _apply_image(self, img: Any) -> Any:
        return self.params(img)


class Pad(BaseTransform):
    """Borders; see `functional.pad`."""

    def __init__(
        self,
        padding: Size,
        fill: Any = 0,
        padding_mode: str = "constant",
        keys: Sequence[str] | None = None,
    ) -> None:
        super().__init__(keys)
        self.padding, self.fill, self.padding_mode = padding, fill, padding_mode

    def _apply_image(self, img: Any) -> Any:
        return F.pad(img, self.padding, self.fill, self.padding_mode)


class RandomRotation(BaseTransform):
    """Rotate by a random angle from -degrees to degrees, or from a range."""

    def __init__(
        self,
        degrees: float | Sequence[float],
        interpolation: str = "nearest",
        expand: bool = False,
        center: tuple[float, float] | None = None,
        fill: Any = 0,
        keys: Sequence[str] | None = None,
    ) -> None:
        super().__init__(keys)
        if isinstance(degrees, int | float) and degrees < 0:
            raise ConfigError(f"RandomRotation: degrees={degrees}; give a number of 0 or more, or a range")
        self.degrees = (-degrees, degrees) if isinstance(degrees, int | float) else tuple(degrees)
        self.interpolation, self.expand, self.center, self.fill = interpolation, expand, center, fill

    def _get_params(self, inputs: tuple[Any, ...]) -> float:
        return random.uniform(*self.degrees)

    def _apply_image(self, img: Any) -> Any:
        return F.rotate(img, self.params, self.interpolation, self.expand, self.center, self.fill)


class Grayscale(BaseTransform):
    """Grey, with one channel or three equal ones."""

    def __init__(self, num_output_channels: int = 1, keys: Sequence[str] | None = None) -> None:
        super().__init__(keys)
        self.num_output_channels = num_output_channels

    def _apply_image(self, img: Any) -> Any:
        return F.to_grayscale(img, self.num_output_channels)


def _pair(size: Size) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))
